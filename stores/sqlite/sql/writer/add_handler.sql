-- Adds a handler and returns its id.
-- ?1 inbox
-- ?2 key, the newest one
-- ?3 origin, the first key
INSERT INTO oncebox_handler (inbox, key, origin) VALUES (?1, ?2, ?3) RETURNING id
