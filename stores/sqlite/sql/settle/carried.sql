-- Reads the state that an entry keeps when it is settled.
-- ?1 claim_id
-- ?2 seq
-- ?3 handler
-- ?4 token
-- Index: primary key of oncebox_running.
SELECT order_key, error FROM oncebox_running WHERE claim_id = ?1 AND seq = ?2 AND handler = ?3 AND token = ?4
