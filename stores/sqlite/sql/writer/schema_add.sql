INSERT INTO oncebox_schema (version, name, applied_at) VALUES (?1, ?2, ?3)
