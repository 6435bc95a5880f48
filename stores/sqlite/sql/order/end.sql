-- A line in which nobody waits and nobody may go is none.
DELETE FROM oncebox_line
WHERE handler = ?1 AND order_key = ?2 AND seq = 0
  AND NOT EXISTS (SELECT 1 FROM oncebox_entry e WHERE e.handler = ?1 AND e.line = oncebox_line.number AND e.due = 9223372036854775807)
