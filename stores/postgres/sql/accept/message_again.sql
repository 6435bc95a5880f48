-- Brings back a message whose payload has left before its key. $1 number, $2 inbox, $3 digest; the rest is the message.
INSERT INTO oncebox_message (seq, received_at, time, lane, inbox, digest, source, id, type, ordering_key, headers, payload, tenant)
SELECT $1, p.received_at, $4, $1 & 63, $2, $3, $5, $6, $7, $8, $9, $10, $11
FROM oncebox_proof p WHERE p.lane = $12 AND p.digest = $3
ON CONFLICT (lane, seq) DO NOTHING
