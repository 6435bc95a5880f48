INSERT INTO oncebox_poisoned (seq, handler, generation, token, at, attempts, crashes, reason, order_key, error)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
