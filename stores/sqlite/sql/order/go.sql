DELETE FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2 AND in_line = 'blocks' AND seq < 0
