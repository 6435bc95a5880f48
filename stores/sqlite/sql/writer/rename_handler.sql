-- Stores the newest key of a handler.
-- ?1 handler
-- ?2 key
-- Index: primary key of oncebox_handler.
UPDATE oncebox_handler SET key = ?2 WHERE id = ?1
