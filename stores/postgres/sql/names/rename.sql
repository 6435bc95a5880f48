-- $1 handler, $2 its newest key.
UPDATE oncebox_handler SET key = $2 WHERE id = $1
