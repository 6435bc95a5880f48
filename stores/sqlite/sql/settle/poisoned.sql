INSERT INTO oncebox_poisoned
    (seq, handler, generation, token, at, attempts, crashes, reason, order_key, in_line, not_before, error)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
