-- The same for one operation, by its identity, which nobody else has.
SELECT number, id, parent, at, actor, reason, verb, digest, handler, body, answer, noted, progress, token
FROM oncebox_operation
WHERE id = ?4 AND inbox = ?1 AND number < ?2 AND (?5 IS NULL OR parent = ?5) AND (?6 IS NULL OR digest = ?6)
  AND (?7 IS NULL OR actor = ?7) AND (?8 IS NULL OR token = ?8)
LIMIT ?3
