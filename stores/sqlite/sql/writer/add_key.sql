INSERT INTO oncebox_handler_key (inbox, key, handler) VALUES (?1, ?2, ?3)
