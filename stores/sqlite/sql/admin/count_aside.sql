SELECT count(*), count(*) FILTER (WHERE reason = 'stale') FROM oncebox_aside WHERE inbox = ?1
