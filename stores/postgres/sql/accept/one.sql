-- One plain message: no batch has to be joined with what of it was new. Answers as the long way does; looks for the key first, and
-- fails if it comes in from elsewhere at the same moment: then the long way is taken.
-- $1 now or nothing, $2 inbox, $3 handlers as the proof holds them, $4 handlers, $5 place, $6 lane, $7 digest, $8 fingerprint,
-- $9 time, $10 source, $11 id, $12 type, $13 headers, $14 payload, $15 tenant. The watermark is looked at if it may have been forgotten.
WITH offered AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now,
           coalesce($9::bigint <= :watermark, false) AS stale,
           known.seq AS known, known.received_at AS known_at, known.fingerprint, known.handlers,
           CASE WHEN known.seq IS NULL
                THEN (partition_id << 36) | ((nextval('oncebox_counter') - counted) << 6) | $6::bigint END AS seq
    FROM oncebox_meta LEFT JOIN LATERAL (
        -- The limit keeps the planner from reading the whole table instead.
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
