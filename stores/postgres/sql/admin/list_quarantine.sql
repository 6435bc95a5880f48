-- Lists quarantined messages of an inbox. Reads the length of a payload without reading the payload.
-- $1 inbox smallint
-- $2 reason text or NULL
-- $3 id bigint: to continue after
-- $4 limit bigint
-- $5 tenant text or NULL
-- Index: primary key of oncebox_quarantine.
SELECT id, reason, received_at, digest, tenant, source, message_id, type, ordering_key, octet_length(payload)
FROM oncebox_quarantine WHERE inbox = $1 AND ($2::text IS NULL OR reason = $2) AND id > $3 AND ($5::text IS NULL OR tenant = $5)
ORDER BY id LIMIT $4
