DELETE FROM oncebox_line WHERE handler = ?1 AND order_key = ?2 AND seq = ?3
