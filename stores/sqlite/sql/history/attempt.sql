INSERT INTO oncebox_attempt (seq, handler, token, generation, at, event, attempts, crashes, claim_id, error)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
