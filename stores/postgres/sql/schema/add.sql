INSERT INTO oncebox_schema (version, name) VALUES ($1, $2)
