INSERT INTO @schema (version, name) VALUES ($1, $2)
