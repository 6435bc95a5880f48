-- Takes an identity, before anything is done under it. Waits for another transaction that has it; a row if it is ours. The answer
-- follows in the same transaction. $1 now or nothing, $2 id, $3 parent, $4 inbox, $5 actor, $6 reason, $7 verb, $8 key, $9 handler,
-- $10 body, $11 token or nothing.
INSERT INTO oncebox_operation (id, parent, inbox, at, actor, reason, verb, digest, handler, body, answer, token)
VALUES ($2, $3, $4, coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint), $5, $6, $7, $8, $9, $10, '', $11)
ON CONFLICT (id) DO NOTHING
RETURNING number
