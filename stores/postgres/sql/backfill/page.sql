-- Reads a page of messages of all inboxes in the order of acceptance. The type is NULL if the message was dropped before
-- its key.
-- $1 seq bigint: to continue after
-- $2 limit bigint
-- Index: oncebox_proof_seq, primary key of oncebox_message.
SELECT p.seq, p.inbox, p.lane, p.digest, p.handlers, m.type, m.source, m.ordering_key, m.tenant, m.time
FROM (SELECT seq, inbox, lane, digest, handlers FROM oncebox_proof WHERE seq > $1 ORDER BY seq LIMIT $2) p
LEFT JOIN LATERAL (
    SELECT m.type, m.source, m.ordering_key, m.tenant, m.time FROM oncebox_message m WHERE m.lane = p.seq & 63 AND m.seq = p.seq LIMIT 1
) m ON true
ORDER BY p.seq
