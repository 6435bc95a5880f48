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
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
