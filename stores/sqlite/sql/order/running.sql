SELECT EXISTS (SELECT 1 FROM oncebox_running WHERE handler = ?1 AND order_key = ?2)
