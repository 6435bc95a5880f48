DELETE FROM oncebox_entry WHERE seq = ?3 AND handler = ?1 AND +due = ?2
