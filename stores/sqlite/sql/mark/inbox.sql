-- Returns the id of an inbox, and adds it if a mark is the first to name it.
-- ?1 inbox, by name
-- ?2 watermark of a new one
-- Index: unique (name) of oncebox_inbox.
INSERT INTO oncebox_inbox (name, watermark) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id
