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
ORDER BY number DESC LIMIT $3
