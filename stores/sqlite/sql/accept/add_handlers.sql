-- Stores the handlers of a known message.
-- ?1 seq
-- ?2 handlers, all of them
-- Index: primary key of oncebox_message.
UPDATE oncebox_message SET handlers = ?2 WHERE seq = ?1
