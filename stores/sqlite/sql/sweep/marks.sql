-- The oldest of a handler first: a range of oncebox_mark_age.
DELETE FROM oncebox_mark
WHERE id IN (SELECT id FROM oncebox_mark WHERE inbox = ?1 AND handler = ?2 AND at <= ?3 ORDER BY at LIMIT ?4)
