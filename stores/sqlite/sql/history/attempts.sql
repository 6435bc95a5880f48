SELECT handler, generation, at, event, attempts, crashes, error, claim_id FROM oncebox_attempt WHERE seq = ?1 ORDER BY at, token
