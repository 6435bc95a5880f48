DELETE FROM oncebox_entry WHERE handler = ?1 AND due = ?2 AND seq = ?3
