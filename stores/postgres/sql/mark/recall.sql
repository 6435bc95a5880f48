-- The result that was left with a mark. A statement of its own: the one that marks cannot see what was committed after it began.
-- $1 lane, $2 digest, $3 handler.
SELECT result FROM @mark WHERE (lane, digest, handler) BETWEEN ($1, $2, $3) AND ($1, $2, $3)
