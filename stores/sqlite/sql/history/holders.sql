SELECT handler, claim_id, claimed_at, lease_until FROM oncebox_running WHERE seq = ?1
