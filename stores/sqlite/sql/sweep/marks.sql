-- Marks are numbered in the order they were made, so the oldest come first.
DELETE FROM oncebox_mark WHERE id IN (SELECT id FROM oncebox_mark WHERE inbox = ?1 AND at <= ?2 ORDER BY id LIMIT ?3)
