SELECT count(*), count(*) FILTER (WHERE length(handlers) = 0) FROM oncebox_message WHERE inbox = ?1
