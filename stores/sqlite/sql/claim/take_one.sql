-- One entry of those that `peek_in_turn` or `peek_suspects` found. ?8 whether it runs alone, ?9 owner or
-- nothing.
INSERT INTO oncebox_running
    (claim_id, seq, handler, token, due, claimed_at, lease_until, attempts, crashes, generation, order_key, error,
     alone, owner)
SELECT ?1, seq, handler, ?2, due, ?3, ?4, attempts, crashes, generation, order_key, error, ?8, ?9
FROM oncebox_entry WHERE seq = ?7 AND handler = ?5 AND +due = ?6
