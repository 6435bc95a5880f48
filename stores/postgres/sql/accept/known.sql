-- What a key is known with and for how long, held until the transaction ends; nothing if it has another number by now.
-- $1 lane, $2 digest, $3 now or nothing, $4 number.
SELECT handlers, coalesce($3, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) - received_at, fingerprint
FROM oncebox_proof WHERE lane = $1 AND digest = $2 AND seq = $4 FOR UPDATE
