-- One step into the primary key.
SELECT min(due) FROM oncebox_entry WHERE handler = ?1
