-- Messages in the order of acceptance, of whatever inbox; without type if the message has left before its key. $1 the number
-- to go on after, $2 how many.
SELECT p.seq, p.inbox, p.lane, p.digest, p.handlers, m.type, m.source, m.ordering_key, m.tenant, m.time
FROM (SELECT seq, inbox, lane, digest, handlers FROM oncebox_proof WHERE seq > $1 ORDER BY seq LIMIT $2) p
LEFT JOIN LATERAL (
    SELECT m.type, m.source, m.ordering_key, m.tenant, m.time FROM oncebox_message m WHERE m.lane = p.seq & 63 AND m.seq = p.seq LIMIT 1
) m ON true
ORDER BY p.seq
