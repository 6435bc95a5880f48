-- name: renew
-- Extends a lease.
-- ?1 claim_id
-- ?2 seq
-- ?3 handler
-- ?4 token
-- ?5 lease_until
-- ?6 alone, 1 if the run is still the only one
-- Index: primary key of oncebox_running.
UPDATE oncebox_running SET lease_until = ?5, alone = alone AND ?6 WHERE claim_id = ?1 AND seq = ?2 AND handler = ?3 AND token = ?4;
