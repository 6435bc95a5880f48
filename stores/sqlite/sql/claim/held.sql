-- What a claim id holds, with its messages; also finds a claim whose answer was lost. Primary key prefix, then one
-- message a row, or none if it is gone: then the entry has to be poisoned.
SELECT r.seq, r.handler, r.token, r.claimed_at, r.attempts, r.crashes, r.generation, r.order_key, r.due,
       m.digest, m.received_at, m.time, m.tenant, m.source, m.id, m.type, m.ordering_key, m.headers, m.payload,
       r.alone
FROM oncebox_running r
LEFT JOIN oncebox_message m ON m.seq = r.seq
WHERE r.claim_id = ?1
