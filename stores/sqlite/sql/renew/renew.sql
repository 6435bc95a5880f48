-- ?6 whether one that ran alone still does.
UPDATE oncebox_running SET lease_until = ?5, alone = alone AND ?6 WHERE claim_id = ?1 AND seq = ?2 AND handler = ?3 AND token = ?4
