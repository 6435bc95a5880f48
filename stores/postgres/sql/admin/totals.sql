SELECT (SELECT count(*) FROM @proof WHERE inbox = $1), (SELECT count(*) FROM @aside WHERE inbox = $1)
