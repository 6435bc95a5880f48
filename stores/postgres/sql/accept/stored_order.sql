-- Reads the order of a known message as it was stored. The source is NULL if the message was dropped before its key.
-- $1 lane smallint
-- $2 digest bytea
-- Index: primary keys of oncebox_proof and oncebox_message.
SELECT p.seq, m.source, m.ordering_key, m.tenant
FROM oncebox_proof p LEFT JOIN LATERAL (
    SELECT m.source, m.ordering_key, m.tenant FROM oncebox_message m WHERE m.lane = p.seq & 63 AND m.seq = p.seq LIMIT 1
) m ON true
WHERE p.lane = $1 AND p.digest = $2
