-- Reads a message.
-- ?1 seq
-- ?2 inbox
-- Index: primary key of oncebox_message.
SELECT digest, received_at, time, tenant, source, id, type, ordering_key, headers, payload, fingerprint
FROM oncebox_message WHERE seq = ?1 AND inbox = ?2
