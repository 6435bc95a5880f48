-- Adds keys of a handler.
-- $1 inbox smallint
-- $2 keys text[]
-- $3 handler smallint
-- Lock order: `lock` was taken before.
INSERT INTO oncebox_handler_key (inbox, key, handler) SELECT $1, k.key, $3 FROM unnest($2::text[]) AS k (key)
