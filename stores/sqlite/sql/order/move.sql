UPDATE oncebox_entry SET due = ?4, not_before = ?5 WHERE handler = ?1 AND +due = ?2 AND seq = ?3
