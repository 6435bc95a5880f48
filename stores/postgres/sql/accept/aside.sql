-- Keeps a message aside, once for each payload under a key.
INSERT INTO @aside (received_at, inbox, reason, digest, fingerprint, time, source, message_id, type, ordering_key, headers, payload,
                    tenant)
VALUES (coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint), $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
ON CONFLICT (digest, fingerprint) DO NOTHING
