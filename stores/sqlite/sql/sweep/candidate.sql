-- Reads a message that needs another look.
-- ?1 seq
-- Index: primary key of oncebox_message.
SELECT seq, inbox, received_at, handlers FROM oncebox_message WHERE seq = ?1
