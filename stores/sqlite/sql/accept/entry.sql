INSERT INTO oncebox_entry (handler, due, seq) VALUES (?1, ?2, ?3)
