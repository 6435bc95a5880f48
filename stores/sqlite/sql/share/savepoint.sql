-- The part of one run. The name is ours: a handler has savepoints of its own.
SAVEPOINT oncebox_run
