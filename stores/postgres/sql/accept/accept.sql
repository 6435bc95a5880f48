-- Stores what is new, and says of the rest what is known of it. One row for each message offered:
-- its place in the batch, its number (nothing if it raced with another, or is stale), whether it is new, whether it is
-- stale, the fingerprint and handlers that its key is known with, and for how long it is known.
-- $1 now or nothing, $2 inbox; then by message: $3 place, $4 lane of the digest, $5 lane of the message, $6 digest,
-- $7 fingerprint, $8 handlers, $9 time, $10 source, $11 id, $12 type, $13 ordering key, $14 headers, $15 payload,
-- $16 order key, $17 delay, $20 tenant, or nothing if none has one; and by entry: $18 place of its message, $19 handler. Whom to ask
-- whether it may have been forgotten: $21 by message a number, and $22 by number $23 each handler, former ones included, or 0.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now, segment, counted
    FROM @meta WHERE one
), forgotten AS MATERIALIZED (
    SELECT f.asked, max(coalesce(h.watermark, i.watermark)) AS watermark
    FROM unnest($22::int4[], $23::int2[]) AS f (asked, handler) LEFT JOIN @handler h ON h.id = f.handler
    CROSS JOIN @inbox i WHERE i.id = $2
    GROUP BY f.asked
), offered AS MATERIALIZED (
    SELECT o.*, (m.segment << 36) | ((nextval('@counter') - m.counted) << 6) | o.home AS seq, m.now,
           -- Few different ones are asked. A join could change the order of the numbers.
           coalesce(o.time <= (SELECT f.watermark FROM forgotten f WHERE f.asked = o.asked), false) AS stale, known.seq IS NOT NULL AS known
    FROM moment m CROSS JOIN unnest($3::int4[], $4::int2[], $5::int2[], $6::bytea[], $7::bytea[], $8::bytea[], $9::int8[],
                $10::text[], $11::bytea[], $12::text[], $13::bytea[], $14::bytea[], $15::bytea[], $16::bytea[], $17::int8[],
                $20::text[], $21::int4[])
         AS o (place, lane, home, digest, fingerprint, handlers, time, source, id, type, ordering_key, headers, payload,
               order_key, delay, tenant, asked)
    LEFT JOIN LATERAL (
        SELECT p.seq FROM @proof p WHERE p.lane = o.lane AND p.digest = o.digest LIMIT 1
    ) known ON true
), fresh AS (
    INSERT INTO @proof (seq, received_at, lane, inbox, digest, fingerprint, handlers, tenant)
    SELECT seq, now, lane, $2, digest, fingerprint, handlers, tenant FROM offered
    -- What this statement knows of is no news, even if a sweep forgets it meanwhile.
    WHERE NOT stale AND NOT known
    -- Two batches that share keys must not wait for each other in a ring.
    ORDER BY lane, digest
    ON CONFLICT (lane, digest) DO NOTHING
    RETURNING seq
), first AS MATERIALIZED (
    SELECT o.* FROM offered o JOIN fresh f ON f.seq = o.seq
), stored AS (
    INSERT INTO @message (seq, received_at, time, lane, inbox, digest, source, id, type, ordering_key, headers, payload,
                          tenant)
    SELECT seq, now, time, home, $2, digest, source, id, type, ordering_key, headers, payload, tenant FROM first
), entry AS MATERIALIZED (
    SELECT f.seq, f.now, f.home, e.handler, f.order_key, f.delay
    FROM first f JOIN unnest($18::int4[], $19::int2[]) AS e (place, handler) ON e.place = f.place
), due AS (
    INSERT INTO @entry (seq, due, lane, handler)
    SELECT seq, now, home, handler FROM entry WHERE order_key IS NULL AND delay = 0
), later AS (
    -- One with an order key is parked: whether it may go is found out by who arranges its line.
    INSERT INTO @later (seq, due, not_before, lane, handler, order_key)
    SELECT seq, CASE WHEN order_key IS NULL THEN now + delay ELSE 9223372036854775807 END, now + delay, home, handler,
           order_key
    FROM entry WHERE order_key IS NOT NULL OR delay > 0
)
SELECT place, seq, true, false, NULL::bytea, NULL::bytea, NULL::bigint FROM first
UNION ALL
SELECT o.place, known.seq, false, o.stale, known.fingerprint, known.handlers, o.now - known.received_at
FROM offered o LEFT JOIN LATERAL (
    -- The limit keeps the planner from reading the whole table instead.
    SELECT p.seq, p.received_at, p.fingerprint, p.handlers FROM @proof p WHERE p.lane = o.lane AND p.digest = o.digest LIMIT 1
) known ON true
WHERE NOT EXISTS (SELECT 1 FROM fresh f WHERE f.seq = o.seq)
