-- Inserts a pending entry.
-- ?1 handler
-- ?2 due
-- ?3 seq
-- ?4 not_before
-- ?5 attempts
-- ?6 crashes
-- ?7 generation
-- ?8 token
-- ?9 order_key or NULL
-- ?10 error or NULL
-- ?11 line or NULL
INSERT INTO oncebox_entry (handler, due, seq, not_before, attempts, crashes, generation, token, order_key, error, line)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
