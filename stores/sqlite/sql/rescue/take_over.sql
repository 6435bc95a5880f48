-- ?9 the owner that takes over, or nothing.
UPDATE oncebox_running SET claim_id = ?5, token = ?6, claimed_at = ?7, lease_until = ?8, owner = ?9
WHERE claim_id = ?1 AND seq = ?2 AND handler = ?3 AND token = ?4
