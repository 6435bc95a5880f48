-- Keeps the part of the last run, and begins that of the next one.
RELEASE SAVEPOINT oncebox_run;
SAVEPOINT oncebox_run
