-- The fence: deletes nothing unless exactly this claim still holds the entry.
DELETE FROM oncebox_running WHERE claim_id = ?1 AND seq = ?2 AND handler = ?3 AND token = ?4
