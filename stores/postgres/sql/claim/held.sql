-- What a claim id holds. $1 all lanes, $2 claim id.
SELECT r.seq, r.handler, r.token, r.claimed_at, r.attempts, r.crashes, r.generation, r.order_key IS NOT NULL, r.due,
       m.digest, m.received_at, m.time, m.source, m.id, m.type, m.ordering_key, m.headers, m.payload
FROM @running r LEFT JOIN LATERAL (
    SELECT * FROM @message m WHERE m.lane = r.lane AND m.seq = r.seq LIMIT 1
) m ON true
WHERE r.lane = ANY ($1::int2[]) AND r.claim_id = $2
