-- Records the outcome of an entry that no claim holds.
-- ?1 seq
-- ?2 handler
-- ?3 generation
-- ?4 status
-- ?5 token
-- ?6 now
-- ?7 attempts
-- ?8 crashes
-- ?9 error or NULL
INSERT INTO oncebox_outcome (seq, handler, generation, status, token, at, attempts, crashes, error)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
