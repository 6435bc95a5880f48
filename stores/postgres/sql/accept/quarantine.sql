-- Quarantines a message, once for each payload under a key; not if the content of that key was erased meanwhile. The lock waits for an
-- erasure that has not ended. $14 lane of the key, $15 fingerprint of what is erased.
WITH known AS MATERIALIZED (
    SELECT fingerprint FROM oncebox_proof WHERE lane = $14 AND digest = $4 FOR SHARE
)
INSERT INTO oncebox_quarantine (received_at, inbox, reason, digest, fingerprint, time, source, message_id, type, ordering_key, headers, payload,
                    tenant)
SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint), $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13
WHERE NOT EXISTS (SELECT 1 FROM known WHERE fingerprint = $15)
ON CONFLICT (digest, fingerprint) DO NOTHING
