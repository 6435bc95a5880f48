-- The running table holds no more than what workers have in hand, so a scan is cheap and needs no index on leases.
SELECT claim_id, seq, handler, token FROM oncebox_running WHERE lease_until < ?1 ORDER BY lease_until
