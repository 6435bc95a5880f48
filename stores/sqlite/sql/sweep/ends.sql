-- Reads the end of each entry of a message.
-- ?1 seq
-- Index: primary key of oncebox_outcome.
SELECT handler, at FROM oncebox_outcome WHERE seq = ?1
