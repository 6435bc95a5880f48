-- Deletes a message.
-- ?1 seq
-- Index: primary key of oncebox_message.
DELETE FROM oncebox_message WHERE seq = ?1
