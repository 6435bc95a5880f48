-- One plain message: no batch has to be joined with what of it was new. Answers as the long way does.
-- $1 now or nothing, $2 inbox, $3 handlers as the proof holds them, $4 handlers, $5 place, $6 lane, $7 digest, $8 fingerprint,
-- $9 time, $10 source, $11 id, $12 type, $13 headers, $14 payload, $15 tenant. The watermark is looked at if it may have been forgotten.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now,
           (segment << 36) | ((nextval('@counter') - counted) << 6) | $6::bigint AS seq,
           coalesce($9::bigint <= :watermark, false) AS stale
    FROM @meta WHERE one
), fresh AS (
    INSERT INTO @proof (seq, received_at, lane, inbox, digest, fingerprint, handlers, tenant)
    SELECT seq, now, $6, $2, $7, $8, $3, $15 FROM moment
    -- What this statement knows of is no news, even if a sweep forgets it meanwhile.
    WHERE NOT stale AND NOT EXISTS (SELECT 1 FROM @proof p WHERE p.lane = $6 AND p.digest = $7)
    ON CONFLICT (lane, digest) DO NOTHING
    RETURNING seq, received_at
), stored AS (
    INSERT INTO @message (seq, received_at, time, lane, inbox, digest, source, id, type, headers, payload, tenant)
    SELECT seq, received_at, $9, $6, $2, $7, $10, $11, $12, $13, $14, $15 FROM fresh
), due AS (
    INSERT INTO @entry (seq, due, lane, handler)
    SELECT f.seq, f.received_at, $6, e.handler FROM fresh f CROSS JOIN unnest($4::int2[]) AS e (handler)
)
SELECT $5::int4, seq, true, false, NULL::bytea, NULL::bytea, NULL::bigint FROM fresh
UNION ALL
SELECT $5::int4, known.seq, false, m.stale, known.fingerprint, known.handlers, m.now - known.received_at
FROM moment m LEFT JOIN LATERAL (
    SELECT p.seq, p.received_at, p.fingerprint, p.handlers FROM @proof p WHERE p.lane = $6 AND p.digest = $7 LIMIT 1
) known ON true
WHERE NOT EXISTS (SELECT 1 FROM fresh)
