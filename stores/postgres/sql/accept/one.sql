-- Stores one plain message. A batch join is not needed, so this is the cheapest way. Returns the same columns as
-- `accept`. Looks up the key first, and fails if another transaction inserts it at the same moment: then the caller runs
-- `accept`. `:watermark` is `watermark` or `no_watermark`; `$16` then lists the handlers to ask.
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- $3 handlers bytea: as the proof stores them
-- $4 handlers smallint[]
-- $5 place integer
-- $6 lane smallint
-- $7 digest bytea
-- $8 fingerprint bytea
-- $9 time bigint
-- $10 source text
-- $11 id bytea
-- $12 type text
-- $13 headers bytea
-- $14 payload bytea
-- $15 tenant text
-- Index: primary key of oncebox_proof.
-- Lock order: the row of oncebox_proof.
WITH offered AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now,
           coalesce($9::bigint <= :watermark, false) AS stale,
           known.seq AS known, known.received_at AS known_at, known.fingerprint, known.handlers,
           CASE WHEN known.seq IS NULL
                THEN (partition_id << 36) | ((nextval('oncebox_counter') - counted) << 6) | $6::bigint END AS seq
    FROM oncebox_meta LEFT JOIN LATERAL (
        -- LIMIT keeps the planner from scanning the whole table.
        SELECT p.seq, p.received_at, p.fingerprint, p.handlers FROM oncebox_proof p WHERE p.lane = $6 AND p.digest = $7 LIMIT 1
    ) known ON true
    WHERE one
), proved AS (
    INSERT INTO oncebox_proof (seq, received_at, lane, inbox, digest, fingerprint, handlers, tenant)
    SELECT seq, now, $6, $2, $7, $8, $3, $15 FROM offered WHERE known IS NULL AND NOT stale
), stored AS (
    INSERT INTO oncebox_message (seq, received_at, time, lane, inbox, digest, source, id, type, headers, payload, tenant)
    SELECT seq, now, $9, $6, $2, $7, $10, $11, $12, $13, $14, $15 FROM offered WHERE known IS NULL AND NOT stale
), due AS (
    INSERT INTO oncebox_entry (seq, due, lane, handler)
    SELECT seq, now, $6, unnest($4::int2[]) FROM offered WHERE known IS NULL AND NOT stale
)
SELECT $5::int4, CASE WHEN known IS NULL AND stale THEN NULL ELSE coalesce(known, seq) END, known IS NULL AND NOT stale, stale,
       fingerprint, handlers, now - known_at
FROM offered
