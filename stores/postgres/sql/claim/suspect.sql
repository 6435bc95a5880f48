-- Leases the one due entry that crashed a worker and has waited longest. $1 now or nothing, $2 claim id, $3 lease; by place to
-- look at: $4 lane, $5 handler, $6 which want it is for; by key of a handler that has several: $7 its want, $8 the handler.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), suspect AS MATERIALIZED (
    SELECT r.tid
    FROM moment m, unnest($4::int2[], $5::int2[], $6::int4[]) AS l (lane, handler, want)
    JOIN @handler h ON h.id = l.handler AND NOT h.paused
    CROSS JOIN LATERAL (
        SELECT e.ctid AS tid, e.due, e.seq FROM @later e
        WHERE e.lane = l.lane AND e.handler = l.handler AND e.crashes > 0 AND e.due <= m.now
          -- Nothing earlier waits, runs or blocks under another key of the handler. Only handlers that were renamed have any.
          AND (e.order_key IS NULL OR NOT EXISTS (
              SELECT 1 FROM unnest($7::int4[], $8::int2[]) AS k (want, handler)
              WHERE k.want = l.want AND k.handler <> e.handler AND (
                  EXISTS (SELECT 1 FROM @later o
                      WHERE o.lane = e.lane AND o.handler = k.handler AND o.order_key = e.order_key AND o.seq < e.seq)
                  OR EXISTS (SELECT 1 FROM @entry o
                      WHERE o.lane = e.lane AND o.handler = k.handler AND o.order_key = e.order_key)
                  OR EXISTS (SELECT 1 FROM @poisoned o
                      WHERE o.lane = e.lane AND o.handler = k.handler AND o.order_key = e.order_key
                        AND o.in_line IN ('blocks', 'parks') AND o.seq < e.seq)
              )
          ))
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
