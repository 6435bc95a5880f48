-- Where `take` ended: the same order, the same limit, the same transaction.
SELECT due, seq FROM oncebox_entry
WHERE handler = ?1 AND due <= ?2 AND crashes = 0
ORDER BY due, seq
LIMIT 1 OFFSET ?3
