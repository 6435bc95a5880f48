-- Adds a key of a handler.
-- ?1 inbox
-- ?2 key
-- ?3 handler
INSERT INTO oncebox_handler_key (inbox, key, handler) VALUES (?1, ?2, ?3)
