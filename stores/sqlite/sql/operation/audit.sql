-- Lists operations of an inbox, latest first.
-- ?1 inbox
-- ?2 number to continue before
-- ?3 limit
-- ?7 actor or NULL
-- ?8 token name or NULL
-- Index: primary key of oncebox_operation.
SELECT number, id, parent, at, actor, reason, verb, digest, handler, body, answer, noted, progress, token
FROM oncebox_operation
WHERE inbox = ?1 AND number < ?2 AND (?7 IS NULL OR actor = ?7) AND (?8 IS NULL OR token = ?8)
ORDER BY number DESC LIMIT ?3
