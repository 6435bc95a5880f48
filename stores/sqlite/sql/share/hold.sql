-- Whether exactly this claim still holds the entry. Nobody else can write until the transaction ends, so it stays true.
SELECT EXISTS (SELECT 1 FROM oncebox_running WHERE claim_id = ?1 AND seq = ?2 AND handler = ?3 AND token = ?4)
