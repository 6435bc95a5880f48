-- Deletes an order queue without a released or waiting entry.
-- ?1 handler
-- ?2 order_key
-- Index: primary key of oncebox_line, oncebox_entry_order.
DELETE FROM oncebox_line
WHERE handler = ?1 AND order_key = ?2 AND seq = 0
  AND NOT EXISTS (SELECT 1 FROM oncebox_entry e WHERE e.handler = ?1 AND e.line = oncebox_line.number AND e.due = 9223372036854775807)
