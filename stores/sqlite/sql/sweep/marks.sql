-- Deletes marks of a handler up to a time, oldest first.
-- ?1 inbox
-- ?2 handler key
-- ?3 at, last one to delete
-- ?4 limit
-- Index: oncebox_mark_age.
DELETE FROM oncebox_mark
WHERE id IN (SELECT id FROM oncebox_mark WHERE inbox = ?1 AND handler = ?2 AND at <= ?3 ORDER BY at LIMIT ?4)
