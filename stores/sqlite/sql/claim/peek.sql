-- Reads the entries that `take` would take. For handlers with former keys, whose entries share one order.
-- ?1 handler
-- ?2 now
-- ?3 limit
-- Index: oncebox_entry_due.
SELECT due, seq, order_key IS NOT NULL FROM oncebox_entry
WHERE handler = ?1 AND due <= ?2 AND due <> 9223372036854775807 AND crashes = 0
ORDER BY due, seq
LIMIT ?3
