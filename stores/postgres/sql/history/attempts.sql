-- Lists the failed attempts of a message, oldest first.
-- $1 seq bigint
-- Index: primary key of oncebox_attempt.
SELECT h.key, a.generation, a.at, a.event, a.attempts, a.crashes, a.error, a.claim_id, h.origin
FROM oncebox_attempt a JOIN oncebox_handler h ON h.id = a.handler WHERE a.lane = $1 & 63 AND a.seq = $1 ORDER BY a.at, a.token
