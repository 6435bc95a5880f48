-- Undoes the part of the last run. The savepoint stays.
ROLLBACK TO oncebox_run
