-- name: mark
-- Marks a key for a handler: see the function `oncebox_mark_v1`. Returns true if the tables are those of the store, true if no
-- other transaction has the key, true if this mark is the first, and the fingerprint of an earlier one.
-- $1 lock bigint: number
-- $2 now bigint or NULL (server clock)
-- $3 lane smallint
-- $4 digest bytea
-- $5 inbox text
-- $6 handler text: key
-- $7 fingerprint bytea or NULL
-- $8 incarnation text: of the tables
-- Index: primary key of oncebox_mark.
-- Lock order: the advisory lock of the key, without waiting; then oncebox_mark.
SELECT home, open, marked, known FROM oncebox_mark_v1($1, $2, $3, $4, $5, $6, $7, $8::text::uuid);

-- name: mark_quarantine
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
ON CONFLICT (digest, fingerprint) DO NOTHING;

-- name: mark_recall
-- Reads the result of a mark. A separate statement: the one that marks cannot see what was committed after it began. The
-- concatenation with '' keeps the planner from the index of ages.
-- $1 lane smallint
-- $2 digest bytea
-- $3 handler text: key
-- Index: primary key of oncebox_mark.
SELECT result FROM oncebox_mark WHERE lane = $1 AND digest = $2 AND handler || '' = $3;

-- name: mark_record
-- Stores the result of a mark, once: a later call changes nothing. The concatenation with '' keeps the planner from the
-- index of ages.
-- $1 result bytea
-- $2 lane smallint
-- $3 digest bytea
-- $4 handler text: key
-- Index: primary key of oncebox_mark.
-- Lock order: the row of oncebox_mark.
UPDATE oncebox_mark SET result = $1 WHERE lane = $2 AND digest = $3 AND handler || '' = $4 AND result IS NULL;

-- name: mark_within
-- Fails outside a transaction. Changes nothing inside one.
SAVEPOINT oncebox_mark;
RELEASE SAVEPOINT oncebox_mark;
