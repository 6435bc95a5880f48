-- Reads the handlers, age and fingerprint of a known key. Returns no row if the key has another number by now.
-- $1 lane smallint
-- $2 digest bytea
-- $3 now bigint or NULL (server clock)
-- $4 seq bigint
-- Index: primary key of oncebox_proof.
-- Lock order: the row of oncebox_proof, until the transaction ends.
SELECT handlers, coalesce($3, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) - received_at, fingerprint
FROM oncebox_proof WHERE lane = $1 AND digest = $2 AND seq = $4 FOR UPDATE
