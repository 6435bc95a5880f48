INSERT INTO oncebox_message
    (seq, inbox, digest, fingerprint, handlers, received_at, time, tenant, source, id, type, ordering_key, headers,
     payload)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
