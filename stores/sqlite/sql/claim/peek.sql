-- What `take` would take: for handlers with former keys, whose entries are claimed in one order.
SELECT due, seq, order_key IS NOT NULL FROM oncebox_entry
WHERE handler = ?1 AND due <= ?2 AND due <> 9223372036854775807 AND crashes = 0
ORDER BY due, seq
LIMIT ?3
