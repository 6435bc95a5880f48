-- Undoes the part of the last run. The savepoint itself stays.
ROLLBACK TO oncebox_run
