-- Ends a claim that still holds, and keeps the last error of its entry. The claim's row leaves next, by finish.sql.
-- ?1 claim id, ?2 number, ?3 handler, ?4 token, ?5 status, ?6 now, ?7 attempts, ?8 crashes, ?9 error if there is a new one.
INSERT INTO oncebox_outcome (seq, handler, generation, status, token, at, attempts, crashes, error)
SELECT seq, handler, generation, ?5, token, ?6, ?7, ?8, coalesce(?9, error)
FROM oncebox_running WHERE claim_id = ?1 AND seq = ?2 AND handler = ?3 AND token = ?4
