-- The same as `audit` for one operation.
-- ?1 inbox
-- ?2 number to continue before
-- ?3 limit
-- ?4 id
-- ?5 parent or NULL
-- ?6 digest or NULL
-- ?7 actor or NULL
-- ?8 token name or NULL
-- Index: unique (id) of oncebox_operation.
SELECT number, id, parent, at, actor, reason, verb, digest, handler, body, answer, noted, progress, token
FROM oncebox_operation
WHERE id = ?4 AND inbox = ?1 AND number < ?2 AND (?5 IS NULL OR parent = ?5) AND (?6 IS NULL OR digest = ?6)
  AND (?7 IS NULL OR actor = ?7) AND (?8 IS NULL OR token = ?8)
LIMIT ?3
