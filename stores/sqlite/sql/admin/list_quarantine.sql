-- Lists quarantined messages of an inbox. SQLite knows the length of a payload without reading it.
-- ?1 inbox
-- ?2 reason or NULL
-- ?3 id to continue after
-- ?4 limit
-- ?5 tenant or NULL
-- Index: primary key of oncebox_quarantine.
SELECT id, reason, received_at, digest, tenant, source, message_id, type, ordering_key, length(payload)
FROM oncebox_quarantine WHERE inbox = ?1 AND (?2 IS NULL OR reason = ?2) AND id > ?3 AND (?5 IS NULL OR tenant = ?5)
ORDER BY id LIMIT ?4
