-- Lists entries of dead workers: their lease expired, or their process is gone.
-- ?1 now
-- ?2 owners that are gone, JSON
-- Index: none: the table has no more rows than the workers hold.
SELECT claim_id, seq, handler, token FROM oncebox_running
WHERE lease_until < ?1 OR owner IN (SELECT value FROM json_each(?2))
ORDER BY lease_until
