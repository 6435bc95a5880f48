-- Quarantines a message that conflicts with a mark, once per payload and key. Adds its inbox if a mark is the first to
-- name it.
-- $1 now bigint or NULL (server clock)
-- $2 inbox text
-- $3 digest bytea
-- $4 fingerprint bytea
-- $5 time bigint or NULL
-- $6 source text
-- $7 id bytea
-- $8 type text
-- $9 ordering_key bytea or NULL
-- $10 headers bytea
-- $11 payload bytea
-- $12 tenant text or NULL
-- Index: unique (name) of oncebox_inbox; unique (digest, fingerprint) of oncebox_quarantine.
-- Lock order: oncebox_inbox, then oncebox_quarantine.
WITH added AS (
    INSERT INTO oncebox_inbox (name, watermark)
    SELECT $2::text, -9223372036854775808 WHERE NOT EXISTS (SELECT 1 FROM oncebox_inbox i WHERE i.name = $2::text)
    ON CONFLICT (name) DO UPDATE SET name = excluded.name
    RETURNING id
), known AS (
    SELECT i.id FROM oncebox_inbox i WHERE i.name = $2::text
    UNION ALL
    SELECT a.id FROM added a
    LIMIT 1
)
INSERT INTO oncebox_quarantine (received_at, inbox, reason, digest, fingerprint, time, source, message_id, type, ordering_key, headers, payload,
                    tenant)
SELECT coalesce($1::int8, (extract(epoch FROM statement_timestamp()) * 1000)::bigint), k.id, 'conflict', $3::bytea, $4::bytea, $5::int8,
       $6::text, $7::bytea, $8::text, $9::bytea, $10::bytea, $11::bytea, $12::text
FROM known k
ON CONFLICT (digest, fingerprint) DO NOTHING
