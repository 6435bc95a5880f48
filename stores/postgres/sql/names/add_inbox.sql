-- Adds an inbox, unless it exists.
-- $1 name text
-- Index: unique (name) of oncebox_inbox.
INSERT INTO oncebox_inbox (name, watermark) VALUES ($1, -9223372036854775808) ON CONFLICT (name) DO NOTHING
