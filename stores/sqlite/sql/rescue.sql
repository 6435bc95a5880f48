-- name: rescue_expired
-- Lists entries of dead workers: their lease expired, or their process is gone.
-- ?1 now
-- ?2 owners that are gone, JSON
-- Index: none: the table has no more rows than the workers hold.
SELECT claim_id, seq, handler, token FROM oncebox_running
WHERE lease_until < ?1 OR owner IN (SELECT value FROM json_each(?2))
ORDER BY lease_until;

-- name: rescue_take_over
-- Moves an entry to another claim.
-- ?1 claim_id
-- ?2 seq
-- ?3 handler
-- ?4 token
-- ?5 claim_id, the new one
-- ?6 token, the new one
-- ?7 now
-- ?8 lease_until
-- ?9 owner or NULL
-- Index: primary key of oncebox_running.
UPDATE oncebox_running SET claim_id = ?5, token = ?6, claimed_at = ?7, lease_until = ?8, owner = ?9
WHERE claim_id = ?1 AND seq = ?2 AND handler = ?3 AND token = ?4;
