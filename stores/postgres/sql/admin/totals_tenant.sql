SELECT (SELECT count(*) FROM @proof WHERE inbox = $1 AND tenant = $2),
       (SELECT count(*) FROM @aside WHERE inbox = $1 AND tenant = $2)
