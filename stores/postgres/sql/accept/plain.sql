-- The short way for messages that all go to the same handlers, at once, and ask for no order. It looks for known keys first, and
-- fails if one of the others comes in from elsewhere at the same moment: then the long way is taken.
-- Answers with one row: of those that are new the places and numbers; of the others the places, numbers, whether they are stale,
-- and the fingerprints and handlers that their keys are known with, and for how long.
-- $1 now or nothing, $2 inbox, $3 handlers as the proof holds them, $4 handlers; then by message: $5 place, $6 lane, $7 digest,
-- $8 fingerprint, $9 time, $10 source, $11 id, $12 type, $13 headers, $14 payload, $15 tenant. Nothing stands for the time and
-- tenant if no message has one, and for the source, type and headers if all have those in $16, $17 and $18: an array less to be
-- taken apart. The watermark is looked at if they may have been forgotten.
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
        -- The limit keeps the planner from reading the whole table instead.
        SELECT p.seq, p.received_at, p.fingerprint, p.handlers FROM oncebox_proof p WHERE p.lane = o.lane AND p.digest = o.digest LIMIT 1
    ) known ON true
), proved AS (
    INSERT INTO oncebox_proof (seq, received_at, lane, inbox, digest, fingerprint, handlers, tenant)
    SELECT seq, now, lane, $2, digest, fingerprint, $3, tenant FROM offered WHERE known IS NULL AND NOT stale
    -- Two batches that share keys must not wait for each other in a ring.
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
