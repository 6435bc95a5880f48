-- Begins an order queue.
-- ?1 handler
-- ?2 order_key
-- ?3 number, the first entry
-- ?4 seq of the entry that may run, or 0
INSERT INTO oncebox_line (handler, order_key, number, seq) VALUES (?1, ?2, ?3, ?4)
