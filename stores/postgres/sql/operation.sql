-- name: operation_add
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
RETURNING number;

-- name: operation_answer
-- Stores the answer of an operation.
-- $1 id uuid
-- $2 answer text: JSON
-- Index: unique (id) of oncebox_operation.
-- Lock order: the row of oncebox_operation.
UPDATE oncebox_operation SET answer = $2 WHERE id = $1;

-- name: operation_audit
-- Lists operations of an inbox, latest first.
-- $1 inbox smallint
-- $2 number bigint: to continue before
-- $3 limit bigint
-- $4 id uuid or NULL
-- $5 parent uuid or NULL
-- $6 digest bytea or NULL
-- $7 actor text or NULL
-- $8 token text: name or NULL
-- Index: primary key of oncebox_operation.
SELECT number, id, parent, at, actor, reason, verb, digest, handler, body, answer, noted, progress, token
FROM oncebox_operation
WHERE inbox = $1 AND number < $2 AND ($4::uuid IS NULL OR id = $4) AND ($5::uuid IS NULL OR parent = $5)
  AND ($6::bytea IS NULL OR digest = $6) AND ($7::text IS NULL OR actor = $7)
  AND ($8::text IS NULL OR token = $8)
ORDER BY number DESC LIMIT $3;

-- name: operation_forget
-- Deletes operations that are older than an age.
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- $3 age bigint in ms
-- $4 limit bigint
-- Index: oncebox_operation_age.
DELETE FROM oncebox_operation WHERE number = ANY (ARRAY(
    SELECT number FROM oncebox_operation
    WHERE inbox = $2 AND at <= coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) - $3
    ORDER BY at LIMIT $4
));

-- name: operation_known
-- Reads an earlier operation with an id.
-- $1 id uuid
-- Index: unique (id) of oncebox_operation.
SELECT body, reason, answer FROM oncebox_operation WHERE id = $1;

-- name: operation_note
-- Stores the progress of an operation, if no other process stored one since.
-- $1 id uuid
-- $2 noted integer: count of stored progresses as last read
-- $3 progress text: JSON
-- Index: unique (id) of oncebox_operation.
-- Lock order: the row of oncebox_operation.
UPDATE oncebox_operation SET progress = $3, noted = noted + 1 WHERE id = $1 AND noted = $2;
