-- Begins the part of one call in a transaction of the caller.
SAVEPOINT oncebox_accept
