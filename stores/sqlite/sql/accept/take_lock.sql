-- Takes the write lock for a transaction that may not have it, so that everything read from now on stays true. Fails at
-- once if the transaction read an older state.
-- Index: none: the table has one row.
UPDATE oncebox_counter SET seq = seq
