-- Pauses an order key: inserts a row before all entries of its queue, which blocks them. Its number is negative, and so
-- less than that of any message.
-- ?1 handler
-- ?2 order_key
-- ?3 now
-- ?4 error, the order key as JSON
-- Index: oncebox_poisoned_order.
INSERT INTO oncebox_poisoned
    (seq, handler, generation, token, at, attempts, crashes, reason, order_key, in_line, not_before, error)
SELECT coalesce((SELECT min(seq) FROM oncebox_poisoned WHERE seq < 0), 0) - 1, ?1, 0, 0, ?3, 0, 0, 'paused', ?2, 'blocks', 0, ?4
WHERE NOT EXISTS (SELECT 1 FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2 AND in_line = 'blocks' AND seq < 0)
