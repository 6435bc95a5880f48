-- The same as `peek`, without entries that wait for an earlier one under another key of the handler.
-- ?1 handler
-- ?2 now
-- ?3 limit
-- ?4 handlers, all keys of this one as JSON
-- Index: oncebox_entry_due, primary key of oncebox_line, oncebox_poisoned_order.
SELECT e.due, e.seq FROM oncebox_entry e
WHERE e.handler = ?1 AND e.due <= ?2 AND e.due <> 9223372036854775807 AND e.crashes = 0
  AND (e.order_key IS NULL OR NOT EXISTS (
    SELECT 1 FROM json_each(?4) k WHERE k.value <> e.handler AND (
        -- A waiting entry has a released or poisoned one before it. A running entry keeps all others waiting.
        EXISTS (SELECT 1 FROM oncebox_line l WHERE l.handler = k.value AND l.order_key = e.order_key AND l.seq > 0 AND (
            l.seq < e.seq OR NOT EXISTS (SELECT 1 FROM oncebox_entry o WHERE o.seq = l.seq AND o.handler = l.handler)
        ))
        OR EXISTS (SELECT 1 FROM oncebox_poisoned o WHERE o.handler = k.value AND o.order_key = e.order_key
            AND o.in_line IN ('blocks', 'parks') AND o.seq < e.seq)
    )
  ))
ORDER BY e.due, e.seq
LIMIT ?3
