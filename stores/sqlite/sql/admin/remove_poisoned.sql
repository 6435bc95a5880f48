-- Deletes a poisoned entry. Returns its order key.
-- ?1 seq
-- ?2 handler
-- Index: primary key of oncebox_poisoned.
DELETE FROM oncebox_poisoned WHERE seq = ?1 AND handler = ?2 RETURNING order_key
