-- Lists the failed attempts of a message, oldest first.
-- ?1 seq
-- Index: primary key of oncebox_attempt.
SELECT handler, generation, at, event, attempts, crashes, error, claim_id FROM oncebox_attempt WHERE seq = ?1 ORDER BY at, token
