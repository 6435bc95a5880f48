-- Stores a message again whose payload was dropped before its key.
-- $1 seq bigint
-- $2 inbox smallint
-- $3 digest bytea
-- $4 time bigint
-- $5 source text
-- $6 id bytea
-- $7 type text
-- $8 ordering_key bytea
-- $9 headers bytea
-- $10 payload bytea
-- $11 tenant text
-- $12 lane smallint: of the key
-- Index: primary keys of oncebox_proof and oncebox_message.
INSERT INTO oncebox_message (seq, received_at, time, lane, inbox, digest, source, id, type, ordering_key, headers, payload, tenant)
SELECT $1, p.received_at, $4, $1 & 63, $2, $3, $5, $6, $7, $8, $9, $10, $11
FROM oncebox_proof p WHERE p.lane = $12 AND p.digest = $3
ON CONFLICT (lane, seq) DO NOTHING
