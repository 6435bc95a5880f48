-- Quarantines a message, once per payload and key. Skips it if the content of that key was erased. Waits for an erasure
-- that has not ended.
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- $3 reason text
-- $4 digest bytea
-- $5 fingerprint bytea
-- $6 time bigint
-- $7 source text
-- $8 id bytea
-- $9 type text
-- $10 ordering_key bytea
-- $11 headers bytea
-- $12 payload bytea
-- $13 tenant text
-- $14 lane smallint: of the key
-- $15 fingerprint bytea: of erased content
-- Index: primary key of oncebox_proof; unique (digest, fingerprint) of oncebox_quarantine.
-- Lock order: the row of oncebox_proof, shared; then oncebox_quarantine.
WITH known AS MATERIALIZED (
    SELECT fingerprint FROM oncebox_proof WHERE lane = $14 AND digest = $4 FOR SHARE
)
INSERT INTO oncebox_quarantine (received_at, inbox, reason, digest, fingerprint, time, source, message_id, type, ordering_key, headers, payload,
                    tenant)
SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint), $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13
WHERE NOT EXISTS (SELECT 1 FROM known WHERE fingerprint = $15)
ON CONFLICT (digest, fingerprint) DO NOTHING
