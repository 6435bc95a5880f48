UPDATE oncebox_entry SET due = ?4 WHERE handler = ?1 AND due = ?2 AND seq = ?3
