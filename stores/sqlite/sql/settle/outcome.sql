INSERT INTO oncebox_outcome (seq, handler, generation, status, token, at, attempts, crashes, error)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
