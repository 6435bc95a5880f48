-- Leases due entries that have not crashed a worker, oldest due first. $1 now or nothing, $2 claim id, $3 lease; by place to
-- look at: $4 lane, $5 handler, $6 which want it is for; by key of a handler that has several: $7 its want, $8 the handler; again
-- by place: $9 the least number of interest, $10 how many untouched ones at most, $11 how many others; by want: $12 its limit. If
-- the claim id holds something already, one row says so and nothing is claimed; unless $13 says that this goes on with a claim.
-- `:chosen` says which of those found are taken, `:first_of_line` whether one with an order key may go.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now,
           NOT $13 AND EXISTS (SELECT 1 FROM @claim WHERE claim_id = $2) AS held
), look AS MATERIALIZED (
    SELECT l.*, m.now, l.want = ANY ($7::int4[]) AS renamed
    FROM moment m, unnest($4::int2[], $5::int2[], $6::int4[], $9::int8[], $10::int8[], $11::int8[])
         AS l (lane, handler, want, least, most, others)
    JOIN @handler h ON h.id = l.handler AND NOT h.paused
    WHERE NOT m.held
), fresh AS MATERIALIZED (
    SELECT l.want, r.due, r.seq, r.tid, NULL::tid AS later_tid
    FROM look l CROSS JOIN LATERAL (
        SELECT e.ctid AS tid, e.seq, e.due FROM @entry e
        WHERE e.lane = l.lane AND e.handler = l.handler AND e.seq >= l.least AND e.token IS NULL
          AND :first_of_line
        ORDER BY e.seq LIMIT l.most FOR UPDATE SKIP LOCKED
    ) r
), postponed AS MATERIALIZED (
    SELECT l.want, r.due, r.seq, NULL::tid AS tid, r.tid AS later_tid
    FROM look l CROSS JOIN LATERAL (
        SELECT e.ctid AS tid, e.seq, e.due FROM @later e
        WHERE e.lane = l.lane AND e.handler = l.handler AND e.crashes = 0 AND e.due <= l.now
          AND e.due <> 9223372036854775807
          AND :first_of_line
        ORDER BY e.due, e.seq LIMIT l.others FOR UPDATE SKIP LOCKED
    ) r
), chosen AS MATERIALIZED (
:chosen
), token AS MATERIALIZED (
    SELECT nextval('@token') AS token FROM (SELECT 1 FROM chosen LIMIT 1) c
), untouched AS (
    UPDATE @entry e SET token = t.token, claimed_at = m.now, lease_until = m.now + $3, claim_id = $2
    FROM moment m, token t
    WHERE e.ctid = ANY (ARRAY(SELECT tid FROM chosen WHERE tid IS NOT NULL))
    RETURNING e.seq, e.lane, e.handler, e.token, e.claimed_at, e.due, e.order_key
), waited AS (
    DELETE FROM @later e WHERE e.ctid = ANY (ARRAY(SELECT later_tid FROM chosen WHERE later_tid IS NOT NULL))
    RETURNING e.seq, e.lane, e.handler, e.due, e.attempts, e.crashes, e.generation, e.order_key, e.error
), moved AS (
    INSERT INTO @entry (seq, due, lane, handler, token, claimed_at, lease_until, claim_id, attempts, crashes, generation,
                        order_key, error)
    SELECT w.seq, w.due, w.lane, w.handler, t.token, m.now, m.now + $3, $2, w.attempts, w.crashes, w.generation, w.order_key,
           w.error
    FROM waited w, moment m, token t
    RETURNING seq, lane, handler, token, claimed_at, due, attempts, crashes, generation, order_key
), ranges AS (
    -- Cut into pieces: those with an order key may lie far apart.
    SELECT lane, handler, min(seq) AS first, max(seq) AS last FROM untouched GROUP BY lane, handler, seq >> 18
    UNION ALL SELECT lane, handler, seq, seq FROM waited
), noted AS (
    INSERT INTO @claim AS claim (claim_id, until, lanes, handlers, firsts, lasts)
    SELECT $2, m.now + $3, r.lanes, r.handlers, r.firsts, r.lasts
    FROM moment m, (
        SELECT array_agg(lane) AS lanes, array_agg(handler) AS handlers, array_agg(first) AS firsts, array_agg(last) AS lasts
        FROM ranges HAVING count(*) > 0
    ) r
    ON CONFLICT (claim_id) DO UPDATE
    SET lanes = claim.lanes || excluded.lanes, handlers = claim.handlers || excluded.handlers,
        firsts = claim.firsts || excluded.firsts, lasts = claim.lasts || excluded.lasts
)
SELECT t.seq, t.handler, t.token, t.claimed_at, t.attempts, t.crashes, t.generation, t.order_key, t.due,
       m.digest, m.received_at, m.time, m.source, m.id, m.type, m.ordering_key, m.headers, m.payload, m.tenant
FROM (
    -- Nothing stands for three times 0: what is not sent is not read.
    SELECT seq, lane, handler, token, claimed_at, NULL::int4 AS attempts, NULL::int4 AS crashes, NULL::int4 AS generation, order_key,
           due
    FROM untouched
    UNION ALL
    SELECT seq, lane, handler, token, claimed_at, attempts, crashes, generation, order_key, due FROM moved
) t LEFT JOIN @message m ON m.lane = t.lane AND m.seq = t.seq
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM moment WHERE held
