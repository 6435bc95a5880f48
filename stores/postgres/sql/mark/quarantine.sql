-- Quarantines a message that is in conflict with a mark, once for each payload under a key, and adds its inbox if a mark is the first
-- to name it.
-- $1 now or nothing; $2 inbox; $3 digest; $4 fingerprint; $5 time or nothing; $6 source; $7 message id; $8 type; $9 ordering key or
-- nothing; $10 headers; $11 payload; $12 tenant or nothing.
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
