-- Reads the proof of a key.
-- $1 lane smallint
-- $2 digest bytea
-- $3 inbox smallint
-- Index: primary key of oncebox_proof.
SELECT seq, received_at, tenant, fingerprint FROM oncebox_proof WHERE lane = $1 AND digest = $2 AND inbox = $3
