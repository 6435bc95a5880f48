-- The first of a line that waits, and whether something poisoned holds it back. Each kind is asked for by itself: a list of them
-- would be made into a table first, every time.
SELECT e.seq,
       EXISTS (SELECT 1 FROM oncebox_poisoned p WHERE p.handler = ?1 AND p.order_key = ?2 AND p.in_line = 'blocks' AND p.seq < e.seq)
       OR EXISTS (SELECT 1 FROM oncebox_poisoned p WHERE p.handler = ?1 AND p.order_key = ?2 AND p.in_line = 'parks' AND p.seq < e.seq)
FROM oncebox_entry e WHERE e.handler = ?1 AND e.order_key = ?2 AND e.due = 9223372036854775807 ORDER BY e.seq LIMIT 1
