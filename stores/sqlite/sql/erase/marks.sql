-- Takes results and fingerprints out of the marks of a key. The condition counts every mark. ?1 key.
UPDATE oncebox_mark SET result = NULL, fingerprint = NULL WHERE digest = ?1
