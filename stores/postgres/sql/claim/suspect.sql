-- Leases due entries that a worker died with: the one that waited longest, and others of its suspicion. $1 now or nothing, $2 claim id,
-- $3 lease; by place to look at: $4 lane, $5 handler, $6 which want it is for; by key of a handler that has several: $7 its want,
-- $8 the handler; by want: $9 its limit; by suspicion, the last one for all above: $10 how many are claimed together; $11 whether the
-- caller has nothing else in hand. Index scheduled_suspect. `:first_of_line` says whether one with an order key may go.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), look AS MATERIALIZED (
    SELECT p.lane, p.handler, p.want, p.want = ANY ($7::int4[]) AS renamed, m.now
    FROM moment m, unnest($4::int2[], $5::int2[], $6::int4[]) AS p (lane, handler, want)
    JOIN oncebox_handler h ON h.id = p.handler AND NOT h.paused
    WHERE NOT EXISTS (SELECT 1 FROM oncebox_claim WHERE claim_id = $2)
), oldest AS MATERIALIZED (
    -- Locked like the others: one that another claim is taking says nothing about which are next.
    SELECT r.crashes
    FROM look l CROSS JOIN LATERAL (
        SELECT e.due, e.seq, e.crashes FROM oncebox_scheduled e
        WHERE e.lane = l.lane AND e.handler = l.handler AND e.crashes > 0 AND e.due <= l.now
          AND :first_of_line
        ORDER BY e.due, e.seq LIMIT 1 FOR UPDATE SKIP LOCKED
    ) r
    ORDER BY r.due, r.seq LIMIT 1
), due AS MATERIALIZED (
    SELECT r.tid, r.due, r.seq, l.want
    FROM oldest o, look l CROSS JOIN LATERAL (
        SELECT e.ctid AS tid, e.due, e.seq FROM oncebox_scheduled e
        WHERE e.lane = l.lane AND e.handler = l.handler AND e.crashes > 0 AND e.crashes = o.crashes AND e.due <= l.now
          AND :first_of_line
        ORDER BY e.due, e.seq LIMIT ($9::int8[])[l.want] FOR UPDATE SKIP LOCKED
    ) r
), suspect AS MATERIALIZED (
    SELECT d.tid
    FROM (SELECT d.*, row_number() OVER (PARTITION BY d.want ORDER BY d.due, d.seq) AS place FROM due d) d
    WHERE d.place <= ($9::int8[])[d.want]
    ORDER BY d.due, d.seq
    LIMIT (SELECT ($10::int8[])[least(o.crashes, cardinality($10::int8[]))] FROM oldest o)
), waited AS (
    DELETE FROM oncebox_scheduled e WHERE e.ctid = ANY (ARRAY(SELECT tid FROM suspect))
    RETURNING e.seq, e.lane, e.handler, e.due, e.attempts, e.crashes, e.generation, e.order_key, e.error
), noted AS (
    INSERT INTO oncebox_claim (claim_id, until, lanes, handlers, firsts, lasts)
    SELECT $2, m.now + $3, w.lanes, w.handlers, w.seqs, w.seqs
    FROM moment m, (
        SELECT array_agg(lane) AS lanes, array_agg(handler) AS handlers, array_agg(seq) AS seqs FROM waited HAVING count(*) > 0
    ) w
), token AS MATERIALIZED (
    SELECT nextval('oncebox_token') AS token FROM (SELECT 1 FROM suspect LIMIT 1) s
)
INSERT INTO oncebox_entry (seq, due, lane, handler, token, claimed_at, lease_until, claim_id, attempts, crashes, generation, order_key,
                    error, alone)
SELECT d.seq, d.due, d.lane, d.handler, t.token, m.now, m.now + $3, $2, d.attempts, d.crashes, d.generation,
       d.order_key, d.error, CASE WHEN $11 AND (SELECT count(*) FROM waited) = 1 THEN true END
FROM moment m, token t, waited d
