-- Reads due entries of a handler that crashed a worker, oldest due first. An earlier entry under another key of the
-- handler keeps them waiting, too.
-- ?1 handler
-- ?2 now
-- ?3 handlers, all keys of this one as JSON
-- ?4 crashes, only this suspicion, or NULL
-- ?5 limit
-- Index: oncebox_entry_suspect, primary key of oncebox_line, oncebox_poisoned_order.
SELECT e.due, e.seq, e.crashes
FROM oncebox_entry e INDEXED BY oncebox_entry_suspect
WHERE e.handler = ?1 AND e.due <= ?2 AND e.crashes > 0 AND (?4 IS NULL OR e.crashes = ?4)
  AND (e.order_key IS NULL OR NOT EXISTS (
    SELECT 1 FROM json_each(?3) k WHERE k.value <> e.handler AND (
        -- A waiting entry has a released or poisoned one before it. A running entry keeps all others waiting.
        EXISTS (SELECT 1 FROM oncebox_line l WHERE l.handler = k.value AND l.order_key = e.order_key AND l.seq > 0 AND (
            l.seq < e.seq OR NOT EXISTS (SELECT 1 FROM oncebox_entry o WHERE o.seq = l.seq AND o.handler = l.handler)
        ))
        OR EXISTS (SELECT 1 FROM oncebox_poisoned o WHERE o.handler = k.value AND o.order_key = e.order_key
            AND o.in_line IN ('blocks', 'parks') AND o.seq < e.seq)
    )
  ))
ORDER BY e.due, e.seq
LIMIT ?5
