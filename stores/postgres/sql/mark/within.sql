-- Fails outside a transaction. Changes nothing inside one.
SAVEPOINT oncebox_mark;
RELEASE SAVEPOINT oncebox_mark
