INSERT INTO oncebox_inbox (name, watermark) VALUES (?1, ?2) RETURNING id
