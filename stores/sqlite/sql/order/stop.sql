-- Stands before everybody in a line and lets nobody pass: an operator holds it back. Its number is less than that of any message.
-- ?1 handler, ?2 order key, ?3 now, ?4 the line as JSON.
INSERT INTO oncebox_poisoned
    (seq, handler, generation, token, at, attempts, crashes, reason, order_key, in_line, not_before, error)
SELECT coalesce((SELECT min(seq) FROM oncebox_poisoned WHERE seq < 0), 0) - 1, ?1, 0, 0, ?3, 0, 0, 'paused', ?2, 'blocks', 0, ?4
WHERE NOT EXISTS (SELECT 1 FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2 AND in_line = 'blocks' AND seq < 0)
