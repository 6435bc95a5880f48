-- Reads the result of a mark.
-- ?1 digest
-- ?2 handler key
-- Index: unique (digest, handler) of oncebox_mark.
SELECT result FROM oncebox_mark WHERE digest = ?1 AND handler = ?2
