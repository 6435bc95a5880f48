-- The same as `audit` for one key.
-- ?1 inbox
-- ?2 number to continue before
-- ?3 limit
-- ?5 parent or NULL
-- ?6 digest
-- ?7 actor or NULL
-- ?8 token name or NULL
-- Index: oncebox_operation_digest.
SELECT number, id, parent, at, actor, reason, verb, digest, handler, body, answer, noted, progress, token
FROM oncebox_operation INDEXED BY oncebox_operation_digest
WHERE digest = ?6 AND inbox = ?1 AND number < ?2 AND (?5 IS NULL OR parent = ?5) AND (?7 IS NULL OR actor = ?7) AND (?8 IS NULL OR token = ?8)
ORDER BY number DESC LIMIT ?3
