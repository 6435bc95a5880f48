-- Adds a handler and returns its id.
-- $1 inbox smallint
-- $2 key text: the newest one
-- $3 origin text: the first key
-- Lock order: `lock` was taken before.
INSERT INTO oncebox_handler (inbox, key, origin) VALUES ($1, $2, $3) RETURNING id
