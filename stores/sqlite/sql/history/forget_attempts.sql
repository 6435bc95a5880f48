-- Deletes the failed attempts of a message.
-- ?1 seq
-- Index: primary key of oncebox_attempt.
DELETE FROM oncebox_attempt WHERE seq = ?1
