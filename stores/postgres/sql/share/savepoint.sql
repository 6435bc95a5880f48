-- Begins the part of the first run in a shared transaction.
SAVEPOINT oncebox_run
