-- What a claim id holds. $1 claim id.
SELECT r.seq, r.handler, r.token, r.claimed_at, coalesce(r.attempts, 0), coalesce(r.crashes, 0), coalesce(r.generation, 0),
       r.order_key, r.due,
       m.digest, m.received_at, m.time, m.source, m.id, m.type, m.ordering_key, m.headers, m.payload, m.tenant
FROM @claim c
CROSS JOIN LATERAL unnest(c.lanes, c.handlers, c.firsts, c.lasts) AS l (lane, handler, first, last)
JOIN @entry r ON r.lane = l.lane AND r.handler = l.handler AND r.seq BETWEEN l.first AND l.last AND r.claim_id = c.claim_id
LEFT JOIN LATERAL (
    SELECT * FROM @message m WHERE m.lane = r.lane AND m.seq = r.seq LIMIT 1
) m ON true
WHERE c.claim_id = $1
