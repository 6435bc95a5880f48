-- Begins the order queue of the entries that `unpark` makes pending, unless it exists.
-- ?1 handler
-- ?2 order_key
-- Index: oncebox_poisoned_order.
INSERT INTO oncebox_line (handler, order_key, number, seq)
SELECT ?1, ?2, seq, 0 FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2 AND in_line = 'parked' ORDER BY seq LIMIT 1
ON CONFLICT (handler, order_key) DO NOTHING
