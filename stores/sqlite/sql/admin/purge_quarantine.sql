-- Deletes quarantined messages up to a receive time.
-- ?1 inbox
-- ?2 received_at, last one to delete
-- ?3 limit
-- Index: primary key of oncebox_quarantine.
DELETE FROM oncebox_quarantine
WHERE id IN (SELECT id FROM oncebox_quarantine WHERE inbox = ?1 AND received_at <= ?2 ORDER BY id LIMIT ?3)
