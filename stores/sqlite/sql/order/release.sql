-- Lets the first of a line go that does not run, if it waits and nothing poisoned holds it back. ?3 now. The plus keeps it from
-- being looked for by what is about to change.
UPDATE oncebox_entry SET due = max(not_before, ?3), not_before = 0
WHERE handler = ?1 AND +due = 9223372036854775807
  AND seq = (SELECT seq FROM oncebox_entry WHERE handler = ?1 AND order_key = ?2 ORDER BY seq LIMIT 1)
  AND NOT EXISTS (
    SELECT 1 FROM oncebox_poisoned p
    WHERE p.handler = ?1 AND p.order_key = ?2 AND p.in_line IN ('blocks', 'parks') AND p.seq < oncebox_entry.seq
  )
