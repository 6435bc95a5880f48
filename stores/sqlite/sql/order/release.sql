-- Lets the first of a line go that waits, unless another one was let go before or something poisoned holds it back. ?3 now.
UPDATE oncebox_entry SET due = max(not_before, ?3), not_before = 0
WHERE handler = ?1 AND due = 9223372036854775807
  AND seq = (
    SELECT seq FROM oncebox_entry INDEXED BY oncebox_entry_line
    WHERE handler = ?1 AND order_key = ?2 AND due = 9223372036854775807 ORDER BY seq LIMIT 1
  )
  AND NOT EXISTS (
    SELECT 1 FROM oncebox_entry INDEXED BY oncebox_entry_head WHERE handler = ?1 AND order_key = ?2 AND due <> 9223372036854775807
  )
  AND NOT EXISTS (
    SELECT 1 FROM oncebox_poisoned p
    WHERE p.handler = ?1 AND p.order_key = ?2 AND p.in_line IN ('blocks', 'parks') AND p.seq < oncebox_entry.seq
  )
