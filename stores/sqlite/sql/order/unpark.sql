-- Makes parked entries pending that no entry parks any more. They wait; the caller then releases the first.
-- ?1 handler
-- ?2 order_key
-- Index: oncebox_poisoned_order, primary key of oncebox_line.
INSERT INTO oncebox_entry (handler, due, seq, not_before, attempts, crashes, generation, token, order_key, error, line)
SELECT handler, 9223372036854775807, seq, not_before, attempts, crashes, generation, token, order_key, error,
       (SELECT number FROM oncebox_line WHERE handler = ?1 AND order_key = ?2)
FROM oncebox_poisoned p
WHERE handler = ?1 AND order_key = ?2 AND in_line = 'parked' AND NOT EXISTS (
    SELECT 1 FROM oncebox_poisoned h
    WHERE h.handler = ?1 AND h.order_key = ?2 AND h.in_line = 'parks' AND h.seq < p.seq
)
