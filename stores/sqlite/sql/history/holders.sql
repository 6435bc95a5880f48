-- Reads the leases of a message's entries.
-- ?1 seq
-- Index: none: the table is small.
SELECT handler, claim_id, claimed_at, lease_until FROM oncebox_running WHERE seq = ?1
