-- When the first entry of a handler was due: one step into the primary key.
SELECT min(due) FROM oncebox_entry WHERE handler = ?1 AND due <= ?2
