-- $1 inbox, $2 its newest key, $3 its first one.
INSERT INTO oncebox_handler (inbox, key, origin) VALUES ($1, $2, $3) RETURNING id
