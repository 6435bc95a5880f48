-- Deletes the pending rows of the entries that `park` parked.
-- ?1 handler
-- ?2 order_key
-- ?3 seq of the entry that parks
-- Index: primary key of oncebox_line, oncebox_entry_order.
DELETE FROM oncebox_entry
WHERE handler = ?1 AND line = (SELECT number FROM oncebox_line WHERE handler = ?1 AND order_key = ?2)
  AND due = 9223372036854775807 AND seq > ?3
