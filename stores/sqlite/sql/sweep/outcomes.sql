-- Deletes the outcomes of a message.
-- ?1 seq
-- Index: primary key of oncebox_outcome.
DELETE FROM oncebox_outcome WHERE seq = ?1
