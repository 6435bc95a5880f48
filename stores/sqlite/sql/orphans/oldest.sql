-- One step into each index.
SELECT coalesce(
    (SELECT min(due) FROM oncebox_entry WHERE handler = ?1 AND due <> 9223372036854775807),
    (SELECT due FROM oncebox_entry WHERE handler = ?1 AND due = 9223372036854775807 LIMIT 1)
)
