-- Leases one entry that `peek_in_turn` or `peek_suspects` found.
-- ?1 claim_id
-- ?2 token
-- ?3 now
-- ?4 lease_until
-- ?5 handler
-- ?6 due
-- ?7 seq
-- ?8 alone, 1 if it is the only run of its worker
-- ?9 owner or NULL
-- Index: primary key of oncebox_entry.
INSERT INTO oncebox_running
    (claim_id, seq, handler, token, due, claimed_at, lease_until, attempts, crashes, generation, order_key, error,
     alone, owner)
SELECT ?1, seq, handler, ?2, due, ?3, ?4, attempts, crashes, generation, order_key, error, ?8, ?9
FROM oncebox_entry WHERE seq = ?7 AND handler = ?5 AND +due = ?6
