-- Deletes a pending entry. Returns its order key.
-- ?1 seq
-- ?2 handler
-- Index: primary key of oncebox_entry.
DELETE FROM oncebox_entry WHERE seq = ?1 AND handler = ?2 RETURNING order_key
