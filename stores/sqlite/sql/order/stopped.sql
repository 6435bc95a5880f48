-- Returns true if an operator paused the order key.
-- ?1 handler
-- ?2 order_key
-- Index: oncebox_poisoned_order.
SELECT EXISTS (SELECT 1 FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2 AND in_line = 'blocks' AND seq < 0)
