-- Messages that were quarantined. $1 inbox, $2 reason or nothing, $3 the one to go on after, $4 how many, $5 tenant or nothing. The
-- length of a payload is known without reading it.
SELECT id, reason, received_at, digest, tenant, source, message_id, type, ordering_key, octet_length(payload)
FROM oncebox_quarantine WHERE inbox = $1 AND ($2::text IS NULL OR reason = $2) AND id > $3 AND ($5::text IS NULL OR tenant = $5)
ORDER BY id LIMIT $4
