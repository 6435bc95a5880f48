-- name: mark
-- Marks a key for a handler, unless it is marked.
-- ?1 inbox
-- ?2 digest
-- ?3 handler key
-- ?4 now
-- ?5 fingerprint or NULL
-- Index: unique (digest, handler) of oncebox_mark.
INSERT INTO oncebox_mark (inbox, digest, handler, at, fingerprint) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (digest, handler) DO NOTHING;

-- name: mark_fingerprint
-- Reads the fingerprint of the message that a key was marked for.
-- ?1 digest
-- ?2 handler key
-- Index: unique (digest, handler) of oncebox_mark.
SELECT fingerprint FROM oncebox_mark WHERE digest = ?1 AND handler = ?2;

-- name: mark_inbox
-- Returns the id of an inbox, and adds it if a mark is the first to name it.
-- ?1 inbox, by name
-- ?2 watermark of a new one
-- Index: unique (name) of oncebox_inbox.
INSERT INTO oncebox_inbox (name, watermark) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id;

-- name: mark_recall
-- Reads the result of a mark.
-- ?1 digest
-- ?2 handler key
-- Index: unique (digest, handler) of oncebox_mark.
SELECT result FROM oncebox_mark WHERE digest = ?1 AND handler = ?2;

-- name: mark_record
-- Stores the result of a mark, once: a later call changes nothing.
-- ?1 result
-- ?2 digest
-- ?3 handler key
-- Index: unique (digest, handler) of oncebox_mark.
UPDATE oncebox_mark SET result = ?1 WHERE digest = ?2 AND handler = ?3 AND result IS NULL;
