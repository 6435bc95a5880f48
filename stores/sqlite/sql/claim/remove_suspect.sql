DELETE FROM oncebox_entry WHERE seq = ?1 AND handler = ?2 AND crashes > 0
