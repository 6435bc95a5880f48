-- When the first entry of a handler was due: one step into its index.
SELECT min(due) FROM oncebox_entry WHERE handler = ?1 AND due <= ?2 AND due <> 9223372036854775807
