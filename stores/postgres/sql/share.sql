-- name: share_next
-- Keeps the part of the last run, and begins that of the next one.
RELEASE SAVEPOINT oncebox_run;
SAVEPOINT oncebox_run;

-- name: share_savepoint
-- Begins the part of the first run in a shared transaction.
SAVEPOINT oncebox_run;

-- name: share_undo
-- Undoes the part of the last run. The savepoint stays.
ROLLBACK TO SAVEPOINT oncebox_run;
