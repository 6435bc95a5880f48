-- ?6 all keys of the handler, as JSON: an earlier one under another key keeps a suspect waiting, too.
INSERT INTO oncebox_running
    (claim_id, seq, handler, token, due, claimed_at, lease_until, attempts, crashes, generation, order_key, error)
SELECT ?1, e.seq, e.handler, ?2, e.due, ?3, ?4, e.attempts, e.crashes, e.generation, e.order_key, e.error
FROM oncebox_entry e INDEXED BY oncebox_entry_suspect
WHERE e.handler = ?5 AND e.due <= ?3 AND e.crashes > 0
  AND (e.order_key IS NULL OR NOT EXISTS (
    SELECT 1 FROM json_each(?6) k WHERE k.value <> e.handler AND (
        -- Before one that waits there is one that may go, or a poisoned one. And one that runs keeps all others waiting.
        EXISTS (SELECT 1 FROM oncebox_line l WHERE l.handler = k.value AND l.order_key = e.order_key AND l.seq > 0 AND (
            l.seq < e.seq OR NOT EXISTS (SELECT 1 FROM oncebox_entry o WHERE o.seq = l.seq AND o.handler = l.handler)
        ))
        OR EXISTS (SELECT 1 FROM oncebox_poisoned o WHERE o.handler = k.value AND o.order_key = e.order_key
            AND o.in_line IN ('blocks', 'parks') AND o.seq < e.seq)
    )
  ))
ORDER BY e.due
LIMIT 1
RETURNING seq
