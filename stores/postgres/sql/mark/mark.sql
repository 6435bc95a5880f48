-- Marks a key for a handler: see the function. Whether nobody else is at it, and whether this was the first. $1 lock, $2 now or
-- nothing, $3 lane, $4 digest, $5 inbox, $6 handler.
SELECT open, marked FROM @mark($1, $2, $3, $4, $5, $6)
