-- Reads the duplicate count of a message.
-- ?1 seq
-- Index: primary key of oncebox_duplicate.
SELECT count, first, last, varied FROM oncebox_duplicate WHERE seq = ?1
