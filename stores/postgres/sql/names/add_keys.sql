-- $1 inbox, $2 keys, $3 handler.
INSERT INTO oncebox_handler_key (inbox, key, handler) SELECT $1, k.key, $3 FROM unnest($2::text[]) AS k (key)
