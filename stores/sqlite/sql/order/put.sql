-- Notes who may go. There is one row for a line: nobody else may.
INSERT INTO oncebox_line (handler, order_key, seq) VALUES (?1, ?2, ?3)
