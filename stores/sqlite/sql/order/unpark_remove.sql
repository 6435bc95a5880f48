-- Deletes the poisoned rows of the entries that `unpark` made pending.
-- ?1 handler
-- ?2 order_key
-- Index: oncebox_poisoned_order.
DELETE FROM oncebox_poisoned
WHERE handler = ?1 AND order_key = ?2 AND in_line = 'parked' AND NOT EXISTS (
    SELECT 1 FROM oncebox_poisoned h
    WHERE h.handler = ?1 AND h.order_key = ?2 AND h.in_line = 'parks' AND h.seq < oncebox_poisoned.seq
)
