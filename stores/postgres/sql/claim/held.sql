-- What a claim id holds. $1 claim id.
SELECT r.seq, r.handler, r.token, r.claimed_at, coalesce(r.attempts, 0), coalesce(r.crashes, 0), coalesce(r.generation, 0),
       r.order_key, r.due,
       m.digest, m.received_at, m.time, m.source, m.id, m.type, m.ordering_key, m.headers, m.payload, m.tenant
FROM (
    -- What a claim went on with may lie between what it had already.
    SELECT DISTINCT ON (e.lane, e.handler, e.seq) e.*
    FROM @claim c
    CROSS JOIN LATERAL unnest(c.lanes, c.handlers, c.firsts, c.lasts) AS l (lane, handler, first, last)
    JOIN @entry e ON e.lane = l.lane AND e.handler = l.handler AND e.seq BETWEEN l.first AND l.last AND e.claim_id = c.claim_id
    WHERE c.claim_id = $1
) r
LEFT JOIN LATERAL (
    SELECT * FROM @message m WHERE m.lane = r.lane AND m.seq = r.seq LIMIT 1
) m ON true
