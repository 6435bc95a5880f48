-- The length of a payload is known without reading it.
SELECT id, reason, received_at, digest, tenant, source, message_id, type, ordering_key, length(payload)
FROM oncebox_quarantine WHERE inbox = ?1 AND (?2 IS NULL OR reason = ?2) AND id > ?3 AND (?5 IS NULL OR tenant = ?5)
ORDER BY id LIMIT ?4
