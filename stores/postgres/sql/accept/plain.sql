-- The short way for messages that all go to the same handlers, at once, and ask for no order; answers as the long one does. It
-- looks for known keys first, and fails if one of the others comes in from elsewhere at the same moment: then the long way is
-- taken.
-- $1 now or nothing, $2 inbox, $3 handlers as the proof holds them, $4 handlers; then by message: $5 place, $6 lane, $7 digest,
-- $8 fingerprint, $9 time, $10 source, $11 id, $12 type, $13 headers, $14 payload, $15 tenant, or nothing
-- if none has one. The watermark is looked at if they may have been forgotten.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now, segment, counted,
           :watermark AS watermark
    FROM @meta WHERE one
), offered AS MATERIALIZED (
    SELECT o.*, m.now, coalesce(o.time <= m.watermark, false) AS stale,
           known.seq AS known, known.fingerprint AS known_fingerprint, known.handlers AS known_handlers,
           m.now - known.received_at AS known_for,
           CASE WHEN known.seq IS NULL
                THEN (m.segment << 36) | ((nextval('@counter') - m.counted) << 6) | o.lane END AS seq
    FROM moment m CROSS JOIN unnest($5::int4[], $6::int2[], $7::bytea[], $8::bytea[], $9::int8[], $10::text[], $11::bytea[],
                                    $12::text[], $13::bytea[], $14::bytea[], $15::text[])
         AS o (place, lane, digest, fingerprint, time, source, id, type, headers, payload, tenant)
    LEFT JOIN LATERAL (
        -- The limit keeps the planner from reading the whole table instead.
        SELECT p.seq, p.received_at, p.fingerprint, p.handlers FROM @proof p WHERE p.lane = o.lane AND p.digest = o.digest LIMIT 1
    ) known ON true
), proved AS (
    INSERT INTO @proof (seq, received_at, lane, inbox, digest, fingerprint, handlers, tenant)
    SELECT seq, now, lane, $2, digest, fingerprint, $3, tenant FROM offered WHERE known IS NULL AND NOT stale
    -- Two batches that share keys must not wait for each other in a ring.
    ORDER BY lane, digest
), stored AS (
    INSERT INTO @message (seq, received_at, time, lane, inbox, digest, source, id, type, headers, payload, tenant)
    SELECT seq, now, time, lane, $2, digest, source, id, type, headers, payload, tenant
    FROM offered WHERE known IS NULL AND NOT stale
), due AS (
    INSERT INTO @entry (seq, due, lane, handler)
    SELECT o.seq, o.now, o.lane, e.handler FROM offered o CROSS JOIN unnest($4::int2[]) AS e (handler)
    WHERE o.known IS NULL AND NOT o.stale
)
SELECT place, CASE WHEN known IS NULL AND stale THEN NULL ELSE coalesce(known, seq) END, known IS NULL AND NOT stale, stale,
       known_fingerprint, known_handlers, known_for
FROM offered
