-- Marks a key for a handler, unless it is marked.
-- ?1 inbox
-- ?2 digest
-- ?3 handler key
-- ?4 now
-- ?5 fingerprint or NULL
-- Index: unique (digest, handler) of oncebox_mark.
INSERT INTO oncebox_mark (inbox, digest, handler, at, fingerprint) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (digest, handler) DO NOTHING
