-- Quarantines a message, once per payload and key: repeated redeliveries must not fill the table.
-- ?1 inbox
-- ?2 digest
-- ?3 fingerprint
-- ?4 reason
-- ?5 received_at
-- ?6 time
-- ?7 tenant
-- ?8 source
-- ?9 id
-- ?10 type
-- ?11 ordering_key
-- ?12 headers
-- ?13 payload
-- Index: unique (digest, fingerprint) of oncebox_quarantine.
INSERT INTO oncebox_quarantine
    (inbox, digest, fingerprint, reason, received_at, time, tenant, source, message_id, type, ordering_key, headers,
     payload)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
ON CONFLICT (digest, fingerprint) DO NOTHING
