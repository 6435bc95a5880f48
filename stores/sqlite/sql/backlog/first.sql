-- Reads the due time of the first entry of a handler that is due.
-- ?1 handler
-- ?2 now
-- Index: oncebox_entry_due, one step.
SELECT min(due) FROM oncebox_entry WHERE handler = ?1 AND due <= ?2 AND due <> 9223372036854775807
