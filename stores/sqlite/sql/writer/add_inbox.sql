-- Adds an inbox and returns its id.
-- ?1 name
-- ?2 watermark
INSERT INTO oncebox_inbox (name, watermark) VALUES (?1, ?2) RETURNING id
