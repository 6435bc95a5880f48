-- The latest first. $1 inbox, $2 the number to go on before, $3 how many; each or nothing: $4 id, $5 parent, $6 key, $7 actor, $8 token.
SELECT number, id, parent, at, actor, reason, verb, digest, handler, body, answer, noted, progress, token
FROM oncebox_operation
WHERE inbox = $1 AND number < $2 AND ($4::uuid IS NULL OR id = $4) AND ($5::uuid IS NULL OR parent = $5)
  AND ($6::bytea IS NULL OR digest = $6) AND ($7::text IS NULL OR actor = $7)
  AND ($8::text IS NULL OR token = $8)
ORDER BY number DESC LIMIT $3
