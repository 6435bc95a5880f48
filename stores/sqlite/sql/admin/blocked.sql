-- Lists order keys that a poisoned entry blocks, oldest first: a row per handler and order key.
-- ?1 inbox
-- ?2 limit
-- ?3 tenant or NULL
-- Index: oncebox_poisoned_order.
SELECT e.seq, e.handler, e.at, e.in_line = 'parks', e.order_key, m.digest, m.ordering_key
FROM oncebox_poisoned e JOIN oncebox_handler h ON h.id = e.handler LEFT JOIN oncebox_message m ON m.seq = e.seq
WHERE h.inbox = ?1 AND e.seq > 0 AND e.in_line IN ('blocks', 'parks') AND NOT EXISTS (
    SELECT 1 FROM oncebox_poisoned b
    WHERE b.handler = e.handler AND b.order_key = e.order_key AND b.in_line IN ('blocks', 'parks') AND b.seq < e.seq AND b.seq > 0
) AND (?3 IS NULL OR m.tenant = ?3)
ORDER BY e.seq, h.key LIMIT ?2
