-- What a claim id holds, with its messages; also finds a claim whose answer was lost. Primary key prefix, then one
-- message a row.
SELECT r.seq, r.handler, r.token, r.claimed_at, r.attempts, r.crashes, r.generation, r.order_key, r.due,
       m.digest, m.received_at, m.time, m.tenant, m.source, m.id, m.type, m.ordering_key, m.headers, m.payload
FROM oncebox_running r
JOIN oncebox_message m ON m.seq = r.seq
WHERE r.claim_id = ?1
