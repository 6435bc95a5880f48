SELECT seq, due FROM oncebox_entry WHERE handler = ?1 AND order_key = ?2 ORDER BY seq LIMIT 1
