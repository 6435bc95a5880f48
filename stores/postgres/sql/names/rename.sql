-- Stores the newest key of a handler.
-- $1 handler smallint
-- $2 key text
-- Index: primary key of oncebox_handler.
-- Lock order: the row of oncebox_handler.
UPDATE oncebox_handler SET key = $2 WHERE id = $1
