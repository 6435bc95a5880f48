-- Deletes a running row under its fence: only if exactly this claim still holds the entry.
-- ?1 claim_id
-- ?2 seq
-- ?3 handler
-- ?4 token
-- Index: primary key of oncebox_running.
DELETE FROM oncebox_running WHERE claim_id = ?1 AND seq = ?2 AND handler = ?3 AND token = ?4
