-- An error outside a transaction, and nothing within one.
SAVEPOINT oncebox_mark;
RELEASE SAVEPOINT oncebox_mark
