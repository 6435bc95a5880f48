INSERT INTO oncebox_handler (inbox, key) VALUES (?1, ?2) RETURNING id
