-- The same message delivered again is the same row: a redelivery storm must not fill the table.
INSERT INTO oncebox_quarantine
    (inbox, digest, fingerprint, reason, received_at, time, tenant, source, message_id, type, ordering_key, headers,
     payload)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
ON CONFLICT (digest, fingerprint) DO NOTHING
