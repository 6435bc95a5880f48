-- Deletes an owner that holds no entry.
-- ?1 owner
-- Index: primary key of oncebox_owner.
DELETE FROM oncebox_owner WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM oncebox_running r WHERE r.owner = ?1)
