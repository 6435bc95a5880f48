-- Inserts a poisoned entry.
-- ?1 seq
-- ?2 handler
-- ?3 generation
-- ?4 token
-- ?5 now
-- ?6 attempts
-- ?7 crashes
-- ?8 reason
-- ?9 order_key or NULL
-- ?10 in_line or NULL
-- ?11 not_before
-- ?12 error or NULL
INSERT INTO oncebox_poisoned
    (seq, handler, generation, token, at, attempts, crashes, reason, order_key, in_line, not_before, error)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
