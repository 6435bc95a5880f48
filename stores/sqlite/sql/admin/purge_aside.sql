DELETE FROM oncebox_aside
WHERE id IN (SELECT id FROM oncebox_aside WHERE inbox = ?1 AND received_at <= ?2 ORDER BY id LIMIT ?3)
