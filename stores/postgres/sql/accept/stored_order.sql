-- The line that a known message asked for when it was stored; without source if the message has left before its key. $1 lane,
-- $2 digest.
SELECT p.seq, m.source, m.ordering_key, m.tenant
FROM oncebox_proof p LEFT JOIN LATERAL (
    SELECT m.source, m.ordering_key, m.tenant FROM oncebox_message m WHERE m.lane = p.seq & 63 AND m.seq = p.seq LIMIT 1
) m ON true
WHERE p.lane = $1 AND p.digest = $2
