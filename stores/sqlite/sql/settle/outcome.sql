-- Ends a claim that still holds, and keeps the last error of its entry. `finish` then deletes the running row.
-- ?1 claim_id
-- ?2 seq
-- ?3 handler
-- ?4 token
-- ?5 status
-- ?6 now
-- ?7 attempts
-- ?8 crashes
-- ?9 error, a new one, or NULL
-- Index: primary key of oncebox_running.
INSERT INTO oncebox_outcome (seq, handler, generation, status, token, at, attempts, crashes, error)
SELECT seq, handler, generation, ?5, token, ?6, ?7, ?8, coalesce(?9, error)
FROM oncebox_running WHERE claim_id = ?1 AND seq = ?2 AND handler = ?3 AND token = ?4
