-- The same as `audit` for the parts of one operation.
-- ?1 inbox
-- ?2 number to continue before
-- ?3 limit
-- ?5 parent
-- ?7 actor or NULL
-- ?8 token name or NULL
-- Index: oncebox_operation_parent.
SELECT number, id, parent, at, actor, reason, verb, digest, handler, body, answer, noted, progress, token
FROM oncebox_operation INDEXED BY oncebox_operation_parent
WHERE parent = ?5 AND inbox = ?1 AND number < ?2 AND (?7 IS NULL OR actor = ?7) AND (?8 IS NULL OR token = ?8)
ORDER BY number DESC LIMIT ?3
