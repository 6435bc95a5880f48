-- ?3 the entry it begins with, ?4 the one that may go.
INSERT INTO oncebox_line (handler, order_key, number, seq) VALUES (?1, ?2, ?3, ?4)
