DELETE FROM oncebox_quarantine
WHERE id IN (SELECT id FROM oncebox_quarantine WHERE inbox = ?1 AND received_at <= ?2 ORDER BY id LIMIT ?3)
