-- Deletes results and fingerprints of the marks of a key. Counts every mark.
-- ?1 digest
-- Index: unique (digest, handler) of oncebox_mark.
UPDATE oncebox_mark SET result = NULL, fingerprint = NULL WHERE digest = ?1
