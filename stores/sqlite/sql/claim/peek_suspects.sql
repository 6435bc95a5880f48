-- Due suspects of a handler, oldest due first; index oncebox_entry_suspect. ?1 handler, ?2 now, ?3 all keys of the handler, as JSON:
-- an earlier entry under another key keeps a suspect waiting, too. ?4 only those of this suspicion, or nothing; ?5 limit.
SELECT e.due, e.seq, e.crashes
FROM oncebox_entry e INDEXED BY oncebox_entry_suspect
WHERE e.handler = ?1 AND e.due <= ?2 AND e.crashes > 0 AND (?4 IS NULL OR e.crashes = ?4)
  AND (e.order_key IS NULL OR NOT EXISTS (
    SELECT 1 FROM json_each(?3) k WHERE k.value <> e.handler AND (
        -- Before one that waits there is one that may go, or a poisoned one. And one that runs keeps all others waiting.
        EXISTS (SELECT 1 FROM oncebox_line l WHERE l.handler = k.value AND l.order_key = e.order_key AND l.seq > 0 AND (
            l.seq < e.seq OR NOT EXISTS (SELECT 1 FROM oncebox_entry o WHERE o.seq = l.seq AND o.handler = l.handler)
        ))
        OR EXISTS (SELECT 1 FROM oncebox_poisoned o WHERE o.handler = k.value AND o.order_key = e.order_key
            AND o.in_line IN ('blocks', 'parks') AND o.seq < e.seq)
    )
  ))
ORDER BY e.due, e.seq
LIMIT ?5
