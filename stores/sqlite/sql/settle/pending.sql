INSERT INTO oncebox_entry (handler, due, seq, not_before, attempts, crashes, generation, token, order_key, error, line)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
