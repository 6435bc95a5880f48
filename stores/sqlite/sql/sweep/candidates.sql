-- Reads a page of messages, oldest first. Receive times grow with the number, unless the clock is set back.
-- ?1 seq to continue after
-- ?2 limit
-- Index: primary key of oncebox_message.
SELECT seq, inbox, received_at, handlers FROM oncebox_message WHERE seq > ?1 ORDER BY seq LIMIT ?2
