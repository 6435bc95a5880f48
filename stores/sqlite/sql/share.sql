-- name: share_hold
-- Returns true if exactly this claim still holds the entry. No other connection can write until the transaction ends, so
-- it stays true.
-- ?1 claim_id
-- ?2 seq
-- ?3 handler
-- ?4 token
-- Index: primary key of oncebox_running.
SELECT EXISTS (SELECT 1 FROM oncebox_running WHERE claim_id = ?1 AND seq = ?2 AND handler = ?3 AND token = ?4);

-- name: share_release
-- Keeps the part of the last run, and ends the savepoints that its handler left open.
RELEASE oncebox_run;

-- name: share_rollback
-- Undoes the part of the last run. The savepoint stays.
ROLLBACK TO oncebox_run;

-- name: share_savepoint
-- Begins the part of one run. The name is reserved: handlers have savepoints of their own.
SAVEPOINT oncebox_run;
