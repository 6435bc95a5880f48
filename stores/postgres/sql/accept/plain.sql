-- The short way for messages that all go to the same handlers, at once, and ask for no order; answers as the long one does.
-- $1 now or nothing, $2 inbox, $3 handlers as the proof holds them, $4 handlers; then by message: $5 place, $6 lane, $7 digest,
-- $8 fingerprint, $9 time, $10 source, $11 id, $12 type, $13 headers, $14 payload.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now, segment, counted,
           (SELECT watermark FROM @inbox WHERE id = $2) AS watermark
    FROM @meta
), offered AS MATERIALIZED (
    SELECT o.*, (m.segment << 36) | ((nextval('@counter') - m.counted) << 6) | o.lane AS seq, m.now,
           coalesce(o.time <= m.watermark, false) AS stale
    FROM moment m, unnest($5::int4[], $6::int2[], $7::bytea[], $8::bytea[], $9::int8[], $10::text[], $11::bytea[], $12::text[],
                $13::bytea[], $14::bytea[])
         AS o (place, lane, digest, fingerprint, time, source, id, type, headers, payload)
), fresh AS (
    INSERT INTO @proof (seq, received_at, lane, inbox, digest, fingerprint, handlers)
    SELECT seq, now, lane, $2, digest, fingerprint, $3 FROM offered WHERE NOT stale
    -- Two batches that share keys must not wait for each other in a ring.
    ORDER BY lane, digest
    ON CONFLICT (lane, digest) DO NOTHING
    RETURNING seq
), first AS MATERIALIZED (
    SELECT o.* FROM offered o JOIN fresh f ON f.seq = o.seq
), stored AS (
    INSERT INTO @message (seq, received_at, time, lane, inbox, digest, source, id, type, headers, payload)
    SELECT seq, now, time, lane, $2, digest, source, id, type, headers, payload FROM first
), due AS (
    INSERT INTO @entry (seq, due, lane, handler)
    SELECT f.seq, f.now, f.lane, e.handler FROM first f CROSS JOIN unnest($4::int2[]) AS e (handler)
)
SELECT place, seq, true, false, NULL::bytea, NULL::bytea FROM first
UNION ALL
SELECT o.place, known.seq, false, o.stale, known.fingerprint, known.handlers
FROM offered o LEFT JOIN LATERAL (
    -- The limit keeps the planner from reading the whole table instead.
    SELECT p.seq, p.fingerprint, p.handlers FROM @proof p WHERE p.lane = o.lane AND p.digest = o.digest LIMIT 1
) known ON true
WHERE NOT EXISTS (SELECT 1 FROM fresh f WHERE f.seq = o.seq)
