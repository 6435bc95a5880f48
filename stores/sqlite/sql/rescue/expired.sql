-- Entries of dead workers: their lease ran out, or their process is gone. The running table holds no more than what workers have in
-- hand, so a scan is cheap and needs no index on leases. ?1 now, ?2 owners that are gone, as JSON.
SELECT claim_id, seq, handler, token FROM oncebox_running
WHERE lease_until < ?1 OR owner IN (SELECT value FROM json_each(?2))
ORDER BY lease_until
