-- Leases the one due entry that crashed a worker and has waited longest. $1 now or nothing, $2 claim id, $3 lease; by place to
-- look at: $4 lane, $5 handler, $6 which want it is for; by key of a handler that has several: $7 its want, $8 the handler.
-- `:first_of_line` says whether one with an order key may go.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), suspect AS MATERIALIZED (
    SELECT r.tid
    FROM moment m CROSS JOIN LATERAL (
        SELECT p.*, p.want = ANY ($7::int4[]) AS renamed
        FROM unnest($4::int2[], $5::int2[], $6::int4[]) AS p (lane, handler, want)
    ) l
    JOIN @handler h ON h.id = l.handler AND NOT h.paused
    CROSS JOIN LATERAL (
        SELECT e.ctid AS tid, e.due, e.seq FROM @later e
        WHERE e.lane = l.lane AND e.handler = l.handler AND e.crashes > 0 AND e.due <= m.now
          AND :first_of_line
        ORDER BY e.due, e.seq LIMIT 1 FOR UPDATE SKIP LOCKED
    ) r
    WHERE NOT EXISTS (SELECT 1 FROM @claim WHERE claim_id = $2)
    ORDER BY r.due, r.seq LIMIT 1
), waited AS (
    DELETE FROM @later e WHERE e.ctid = ANY (ARRAY(SELECT tid FROM suspect))
    RETURNING e.seq, e.lane, e.handler, e.due, e.attempts, e.crashes, e.generation, e.order_key, e.error
), noted AS (
    INSERT INTO @claim (claim_id, until, lanes, handlers, firsts, lasts)
    SELECT $2, m.now + $3, ARRAY[w.lane], ARRAY[w.handler], ARRAY[w.seq], ARRAY[w.seq] FROM moment m, waited w
)
INSERT INTO @entry (seq, due, lane, handler, token, claimed_at, lease_until, claim_id, attempts, crashes, generation, order_key,
                    error)
SELECT d.seq, d.due, d.lane, d.handler, nextval('@token'), m.now, m.now + $3, $2, d.attempts, d.crashes, d.generation,
       d.order_key, d.error
FROM moment m, waited d
