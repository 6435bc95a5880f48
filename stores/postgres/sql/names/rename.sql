-- $1 handler, $2 its newest key.
UPDATE @handler SET key = $2 WHERE id = $1
