-- The first due entries of one handler, in the order of their index: costs what it takes, whatever the backlog. ?7 owner or nothing.
INSERT INTO oncebox_running
    (claim_id, seq, handler, token, due, claimed_at, lease_until, attempts, crashes, generation, order_key, error,
     owner)
SELECT ?1, seq, handler, ?2, due, ?3, ?4, attempts, crashes, generation, order_key, error, ?7
FROM oncebox_entry
WHERE handler = ?5 AND due <= ?3 AND due <> 9223372036854775807 AND crashes = 0
ORDER BY due, seq
LIMIT ?6
