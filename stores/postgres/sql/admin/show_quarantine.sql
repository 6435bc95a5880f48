-- Reads the quarantined messages of a key, with their payloads.
-- $1 digest bytea
-- $2 inbox smallint
-- $3 limit bigint
-- Index: unique (digest, fingerprint) of oncebox_quarantine.
SELECT reason, received_at, time, source, message_id, type, ordering_key, headers, payload, tenant
FROM oncebox_quarantine WHERE digest = $1 AND inbox = $2 ORDER BY id LIMIT $3
