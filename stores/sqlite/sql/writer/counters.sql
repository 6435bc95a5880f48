-- Reads the counters of the store.
-- Index: none: the table has one row.
SELECT seq, token, merged, pass_upto, pass_slice, proofs, swept FROM oncebox_counter
