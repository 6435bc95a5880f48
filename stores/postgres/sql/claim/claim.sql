-- Leases due entries that have not crashed a worker, oldest due first. $1 now or nothing, $2 claim id, $3 lease, $4 all lanes;
-- by place to look at: $5 lane, $6 handler, $7 the least number of interest, $8 how many at most, $9 which want it is
-- for; by want: $10 its limit. If the claim id holds something already, one row says so and nothing is claimed; unless $11
-- says that this goes on with a claim.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now,
           NOT $11 AND EXISTS (SELECT 1 FROM @running WHERE lane = ANY ($4::int2[]) AND claim_id = $2) AS held
), look AS MATERIALIZED (
    SELECT l.*, m.now
    FROM moment m, unnest($5::int2[], $6::int2[], $7::int8[], $8::int8[], $9::int4[]) AS l (lane, handler, least, most, want)
    JOIN @handler h ON h.id = l.handler AND NOT h.paused
    WHERE NOT m.held
), fresh AS MATERIALIZED (
    SELECT l.want, l.lane, r.due, r.seq, r.tid, NULL::tid AS later_tid
    FROM look l CROSS JOIN LATERAL (
        SELECT e.ctid AS tid, e.seq, e.received_at AS due FROM @ready e
        WHERE e.lane = l.lane AND e.handler = l.handler AND e.seq >= l.least
        ORDER BY e.seq LIMIT l.most FOR UPDATE SKIP LOCKED
    ) r
), postponed AS MATERIALIZED (
    SELECT l.want, l.lane, r.due, r.seq, NULL::tid AS tid, r.tid AS later_tid
    FROM look l CROSS JOIN LATERAL (
        SELECT e.ctid AS tid, e.seq, e.due FROM @later e
        WHERE e.lane = l.lane AND e.handler = l.handler AND e.crashes = 0 AND e.due <= l.now
        ORDER BY e.due, e.seq LIMIT l.most FOR UPDATE SKIP LOCKED
    ) r
), ranked AS (
    SELECT d.*, row_number() OVER (PARTITION BY d.want ORDER BY d.due, d.seq) AS place
    FROM (SELECT * FROM fresh UNION ALL SELECT * FROM postponed) d
), chosen AS MATERIALIZED (
    SELECT tid, later_tid FROM ranked WHERE place <= ($10::int8[])[want]
), untouched AS (
    DELETE FROM @ready e WHERE e.ctid = ANY (ARRAY(SELECT tid FROM chosen WHERE tid IS NOT NULL))
    RETURNING e.seq, e.lane, e.handler, e.received_at
), waited AS (
    DELETE FROM @later e WHERE e.ctid = ANY (ARRAY(SELECT later_tid FROM chosen WHERE later_tid IS NOT NULL))
    RETURNING e.seq, e.lane, e.handler, e.due, e.attempts, e.crashes, e.generation, e.order_key, e.error
), taken AS (
    INSERT INTO @running (seq, token, due, claimed_at, lease_until, claim_id, attempts, crashes, generation, lane, handler,
                          order_key, error)
    SELECT d.seq, (SELECT nextval('@token')), d.due, m.now, m.now + $3, $2, d.attempts, d.crashes, d.generation, d.lane,
           d.handler, d.order_key, d.error
    FROM moment m, (
        SELECT seq, lane, handler, received_at AS due, 0 AS attempts, 0 AS crashes, 0 AS generation, NULL::bytea AS order_key,
               NULL::text AS error
        FROM untouched
        UNION ALL
        SELECT seq, lane, handler, due, attempts, crashes, generation, order_key, error FROM waited
    ) d
    RETURNING seq, lane, handler, token, claimed_at, attempts, crashes, generation, order_key IS NOT NULL AS ordered, due
)
SELECT t.seq, t.handler, t.token, t.claimed_at, t.attempts, t.crashes, t.generation, t.ordered, t.due,
       m.digest, m.received_at, m.time, m.source, m.id, m.type, m.ordering_key, m.headers, m.payload
FROM taken t LEFT JOIN LATERAL (
    SELECT * FROM @message m WHERE m.lane = t.lane AND m.seq = t.seq LIMIT 1
) m ON true
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM moment WHERE held
