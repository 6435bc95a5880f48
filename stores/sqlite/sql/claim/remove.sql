-- Deletes the pending rows of the entries that `take` took.
-- ?1 claim_id
-- ?2 handler
-- Index: primary keys of oncebox_running and oncebox_entry.
DELETE FROM oncebox_entry
WHERE handler = ?2 AND seq IN (SELECT seq FROM oncebox_running WHERE claim_id = ?1 AND handler = ?2)
