INSERT INTO oncebox_handler (inbox, key, origin) VALUES (?1, ?2, ?3) RETURNING id
