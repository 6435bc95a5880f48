-- $1 key, $2 inbox, $3 how many at most: each has its payload with it.
SELECT reason, received_at, time, source, message_id, type, ordering_key, headers, payload, tenant
FROM oncebox_quarantine WHERE digest = $1 AND inbox = $2 ORDER BY id LIMIT $3
