-- Stores the entry of an order queue that may run.
-- ?1 handler
-- ?2 order_key
-- ?3 seq of the entry that may run, or 0
-- ?4 seq of the one before, or 0
-- Index: primary key of oncebox_line.
UPDATE oncebox_line SET seq = ?3 WHERE handler = ?1 AND order_key = ?2 AND seq = ?4
