-- Resumes an order key that an operator paused: deletes its row.
-- ?1 handler
-- ?2 order_key
-- Index: oncebox_poisoned_order.
DELETE FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2 AND in_line = 'blocks' AND seq < 0
