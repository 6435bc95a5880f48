INSERT INTO oncebox_entry (handler, due, seq, generation, order_key) VALUES (?1, ?2, ?3, ?4, ?5)
