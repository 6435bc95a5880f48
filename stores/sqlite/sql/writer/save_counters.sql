-- Stores the counters of the store.
-- ?1 seq
-- ?2 token
-- ?3 merged
-- ?4 pass_upto
-- ?5 pass_slice
-- ?6 proofs
-- ?7 swept
-- Index: none: the table has one row.
UPDATE oncebox_counter
SET seq = ?1, token = ?2, merged = ?3, pass_upto = ?4, pass_slice = ?5, proofs = ?6, swept = ?7
