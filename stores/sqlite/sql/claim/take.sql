-- Leases the first due entries of one handler in the order of their index. The cost depends on the number of entries,
-- not on the backlog.
-- ?1 claim_id
-- ?2 token
-- ?3 now
-- ?4 lease_until
-- ?5 handler
-- ?6 limit
-- ?7 owner or NULL
-- Index: oncebox_entry_due.
INSERT INTO oncebox_running
    (claim_id, seq, handler, token, due, claimed_at, lease_until, attempts, crashes, generation, order_key, error,
     owner)
SELECT ?1, seq, handler, ?2, due, ?3, ?4, attempts, crashes, generation, order_key, error, ?7
FROM oncebox_entry
WHERE handler = ?5 AND due <= ?3 AND due <> 9223372036854775807 AND crashes = 0
ORDER BY due, seq
LIMIT ?6
