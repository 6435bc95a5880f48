-- Stores a new message.
-- ?1 seq
-- ?2 inbox
-- ?3 digest
-- ?4 fingerprint
-- ?5 handlers
-- ?6 received_at
-- ?7 time
-- ?8 tenant
-- ?9 source
-- ?10 id
-- ?11 type
-- ?12 ordering_key
-- ?13 headers
-- ?14 payload
INSERT INTO oncebox_message
    (seq, inbox, digest, fingerprint, handlers, received_at, time, tenant, source, id, type, ordering_key, headers,
     payload)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
