-- Returns the number of an inbox, and adds it if a mark is the first to name it.
-- ?1 inbox; ?2 the watermark of a new one.
INSERT INTO oncebox_inbox (name, watermark) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id
