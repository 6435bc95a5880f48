-- Stores messages that all go to the same handlers, at once and without order. Looks up the keys first, and fails if
-- another transaction inserts one at the same moment: then the caller runs `accept`. Returns one row: places and numbers
-- of the new messages; of the others the places, numbers, stale flags, and the fingerprints, handlers and ages of their
-- keys. NULL stands for a time or tenant that no message has, and for a source, type or headers that all messages share.
-- `:watermark` is `watermark` or `no_watermark`; `$19` then lists the handlers to ask.
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- $3 handlers bytea: as the proof stores them
-- $4 handlers smallint[]
-- $5 place integer[] (by message)
-- $6 lane smallint[]
-- $7 digest bytea[]
-- $8 fingerprint bytea[]
-- $9 time bigint[]
-- $10 source text[]
-- $11 id bytea[]
-- $12 type text[]
-- $13 headers bytea[]
-- $14 payload bytea[]
-- $15 tenant text[]
-- $16 source text: of all
-- $17 type text: of all
-- $18 headers bytea: of all
-- Index: primary key of oncebox_proof.
-- Lock order: oncebox_proof by (lane, digest).
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now, partition_id, counted,
           :watermark AS watermark
    FROM oncebox_meta WHERE one
), offered AS MATERIALIZED (
    SELECT o.*, m.now, coalesce(o.time <= m.watermark, false) AS stale,
           known.seq AS known, known.fingerprint AS known_fingerprint, known.handlers AS known_handlers,
           m.now - known.received_at AS known_for,
           CASE WHEN known.seq IS NULL
                THEN (m.partition_id << 36) | ((nextval('oncebox_counter') - m.counted) << 6) | o.lane END AS seq
    FROM moment m CROSS JOIN unnest($5::int4[], $6::int2[], $7::bytea[], $8::bytea[], $9::int8[], $10::text[], $11::bytea[],
                                    $12::text[], $13::bytea[], $14::bytea[], $15::text[])
         AS o (place, lane, digest, fingerprint, time, source, id, type, headers, payload, tenant)
    LEFT JOIN LATERAL (
        -- LIMIT keeps the planner from scanning the whole table.
        SELECT p.seq, p.received_at, p.fingerprint, p.handlers FROM oncebox_proof p WHERE p.lane = o.lane AND p.digest = o.digest LIMIT 1
    ) known ON true
), proved AS (
    INSERT INTO oncebox_proof (seq, received_at, lane, inbox, digest, fingerprint, handlers, tenant)
    SELECT seq, now, lane, $2, digest, fingerprint, $3, tenant FROM offered WHERE known IS NULL AND NOT stale
    -- Prevents a deadlock of two batches that share keys.
    ORDER BY lane, digest
), stored AS (
    INSERT INTO oncebox_message (seq, received_at, time, lane, inbox, digest, source, id, type, headers, payload, tenant)
    SELECT seq, now, time, lane, $2, digest, coalesce(source, $16), id, coalesce(type, $17), coalesce(headers, $18), payload, tenant
    FROM offered WHERE known IS NULL AND NOT stale
), due AS (
    INSERT INTO oncebox_entry (seq, due, lane, handler)
    SELECT seq, now, lane, unnest($4::int2[]) FROM offered WHERE known IS NULL AND NOT stale
)
SELECT array_agg(place) FILTER (WHERE fresh), array_agg(seq) FILTER (WHERE fresh),
       array_agg(place) FILTER (WHERE NOT fresh), array_agg(known) FILTER (WHERE NOT fresh), array_agg(stale) FILTER (WHERE NOT fresh),
       array_agg(known_fingerprint) FILTER (WHERE NOT fresh), array_agg(known_handlers) FILTER (WHERE NOT fresh),
       array_agg(known_for) FILTER (WHERE NOT fresh)
FROM (SELECT *, known IS NULL AND NOT stale AS fresh FROM offered) o
