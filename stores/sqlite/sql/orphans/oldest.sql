-- Reads the due time of the first waiting entry of a handler.
-- ?1 handler
-- Index: oncebox_entry_due and oncebox_entry_order, one step each.
SELECT coalesce(
    (SELECT min(due) FROM oncebox_entry WHERE handler = ?1 AND due <> 9223372036854775807),
    (SELECT due FROM oncebox_entry WHERE handler = ?1 AND due = 9223372036854775807 LIMIT 1)
)
