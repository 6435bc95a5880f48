-- Returns the entries that a claim id holds, with their messages. Also finds a claim whose answer was lost. The columns
-- of a missing message are NULL: then the caller poisons the entry.
-- ?1 claim_id
-- Index: primary keys of oncebox_running and oncebox_message.
SELECT r.seq, r.handler, r.token, r.claimed_at, r.attempts, r.crashes, r.generation, r.order_key, r.due,
       m.digest, m.received_at, m.time, m.tenant, m.source, m.id, m.type, m.ordering_key, m.headers, m.payload,
       r.alone
FROM oncebox_running r
LEFT JOIN oncebox_message m ON m.seq = r.seq
WHERE r.claim_id = ?1
