-- Counts the pending entries of a handler up to a limit: those with a due time, and those that wait for an earlier one.
-- ?1 handler
-- ?2 limit
-- Index: oncebox_entry_due and oncebox_entry_order.
SELECT count(*) FROM (
    SELECT 1 FROM oncebox_entry WHERE handler = ?1 AND due <> 9223372036854775807
    UNION ALL
    SELECT 1 FROM oncebox_entry WHERE handler = ?1 AND due = 9223372036854775807
    LIMIT ?2
)
