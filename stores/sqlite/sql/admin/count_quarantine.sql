SELECT count(*), count(*) FILTER (WHERE reason = 'stale') FROM oncebox_quarantine WHERE inbox = ?1
