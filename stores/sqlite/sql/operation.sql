-- name: operation_add
-- Adds an operation, in the transaction that runs it.
-- ?1 id
-- ?2 parent or NULL
-- ?3 inbox
-- ?4 now
-- ?5 actor
-- ?6 reason
-- ?7 verb
-- ?8 digest or NULL
-- ?9 handler key or NULL
-- ?10 body, JSON
-- ?11 answer, JSON
-- ?12 token name or NULL
INSERT INTO oncebox_operation (id, parent, inbox, at, actor, reason, verb, digest, handler, body, answer, token)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12);

-- name: operation_audit
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
ORDER BY number DESC LIMIT ?3;

-- name: operation_audit_id
-- The same as `operation_audit` for one operation.
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
LIMIT ?3;

-- name: operation_audit_key
-- The same as `operation_audit` for one key.
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
ORDER BY number DESC LIMIT ?3;

-- name: operation_audit_parent
-- The same as `operation_audit` for the parts of one operation.
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
ORDER BY number DESC LIMIT ?3;

-- name: operation_forget
-- Deletes operations up to a time.
-- ?1 inbox
-- ?2 at, last one to delete
-- ?3 limit
-- Index: oncebox_operation_age.
DELETE FROM oncebox_operation WHERE number IN (
    SELECT number FROM oncebox_operation WHERE inbox = ?1 AND at <= ?2 ORDER BY at LIMIT ?3
);

-- name: operation_known
-- Reads an earlier operation with an id.
-- ?1 id
-- Index: unique (id) of oncebox_operation.
SELECT body, reason, answer FROM oncebox_operation WHERE id = ?1;

-- name: operation_note
-- Stores the progress of an operation, if no other process stored one since.
-- ?1 id
-- ?2 noted, count of stored progresses as last read
-- ?3 progress, JSON
-- Index: unique (id) of oncebox_operation.
UPDATE oncebox_operation SET progress = ?3, noted = noted + 1 WHERE id = ?1 AND noted = ?2;
