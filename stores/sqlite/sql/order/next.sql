-- Finds the first waiting entry, which may run after entry ?3 ended, and reports if a poisoned entry blocks it.
-- ?1 handler
-- ?2 order_key
-- ?3 seq of the entry that ended
-- Index: primary key of oncebox_line, oncebox_entry_order, oncebox_poisoned_order.
SELECT e.seq,
       CASE WHEN EXISTS (SELECT 1 FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2) THEN
           EXISTS (SELECT 1 FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2 AND in_line = 'blocks' AND seq < e.seq)
           OR EXISTS (SELECT 1 FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2 AND in_line = 'parks' AND seq < e.seq)
       ELSE 0 END
FROM oncebox_line l CROSS JOIN oncebox_entry e ON e.handler = l.handler AND e.line = l.number
WHERE l.handler = ?1 AND l.order_key = ?2 AND l.seq = ?3 AND e.due = 9223372036854775807
ORDER BY e.seq LIMIT 1
