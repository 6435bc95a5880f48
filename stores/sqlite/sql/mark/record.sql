-- Stores the result of a mark, once: a later call changes nothing.
-- ?1 result
-- ?2 digest
-- ?3 handler key
-- Index: unique (digest, handler) of oncebox_mark.
UPDATE oncebox_mark SET result = ?1 WHERE digest = ?2 AND handler = ?3 AND result IS NULL
