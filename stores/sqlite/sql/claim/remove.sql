-- What `take` took. ?1 claim id, ?2 handler.
DELETE FROM oncebox_entry
WHERE handler = ?2 AND seq IN (SELECT seq FROM oncebox_running WHERE claim_id = ?1 AND handler = ?2)
