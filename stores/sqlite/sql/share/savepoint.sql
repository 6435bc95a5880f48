-- Begins the part of one run. The name is reserved: handlers have savepoints of their own.
SAVEPOINT oncebox_run
