-- Reads the fingerprint of the message that a key was marked for.
-- ?1 digest
-- ?2 handler key
-- Index: unique (digest, handler) of oncebox_mark.
SELECT fingerprint FROM oncebox_mark WHERE digest = ?1 AND handler = ?2
