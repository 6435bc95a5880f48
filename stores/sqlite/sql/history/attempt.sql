-- Records a failed attempt.
-- ?1 seq
-- ?2 handler
-- ?3 token
-- ?4 generation
-- ?5 at
-- ?6 event, kind of the failure
-- ?7 attempts
-- ?8 crashes
-- ?9 claim_id
-- ?10 error or NULL
INSERT INTO oncebox_attempt (seq, handler, token, generation, at, event, attempts, crashes, claim_id, error)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
