-- Reads the quarantined messages of a key, with their payloads.
-- ?1 digest
-- ?2 inbox
-- ?3 limit
-- Index: unique (digest, fingerprint) of oncebox_quarantine.
SELECT reason, received_at, time, tenant, source, message_id, type, ordering_key, headers, payload
FROM oncebox_quarantine WHERE digest = ?1 AND inbox = ?2 ORDER BY id LIMIT ?3
