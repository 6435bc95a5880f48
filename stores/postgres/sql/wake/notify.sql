-- $1 the channel, $2 who tells.
SELECT pg_notify($1, $2)
