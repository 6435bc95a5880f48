-- Reserves the id of an operation before its work. Waits for another transaction with the same id. Returns a row if the
-- id is new. The answer follows in the same transaction.
-- $1 now bigint or NULL (server clock)
-- $2 id uuid
-- $3 parent uuid or NULL
-- $4 inbox smallint
-- $5 actor text
-- $6 reason text
-- $7 verb text
-- $8 digest bytea or NULL
-- $9 handler text: key or NULL
-- $10 body text: JSON
-- $11 token text: name or NULL
-- Index: unique (id) of oncebox_operation.
-- Lock order: the row of oncebox_operation.
INSERT INTO oncebox_operation (id, parent, inbox, at, actor, reason, verb, digest, handler, body, answer, token)
VALUES ($2, $3, $4, coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint), $5, $6, $7, $8, $9, $10, '', $11)
ON CONFLICT (id) DO NOTHING
RETURNING number
