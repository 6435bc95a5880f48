-- The latest first. ?1 inbox, ?2 the number to go on before, ?3 how many, ?7 actor or nothing, ?8 token or nothing.
SELECT number, id, parent, at, actor, reason, verb, digest, handler, body, answer, noted, progress, token
FROM oncebox_operation
WHERE inbox = ?1 AND number < ?2 AND (?7 IS NULL OR actor = ?7) AND (?8 IS NULL OR token = ?8)
ORDER BY number DESC LIMIT ?3
