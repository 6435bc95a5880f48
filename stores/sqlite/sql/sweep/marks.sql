-- The oldest first: a range of oncebox_mark_age.
DELETE FROM oncebox_mark WHERE id IN (SELECT id FROM oncebox_mark WHERE inbox = ?1 AND at <= ?2 ORDER BY at LIMIT ?3)
