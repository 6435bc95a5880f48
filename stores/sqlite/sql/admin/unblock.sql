UPDATE oncebox_poisoned SET in_line = 'skipped' WHERE seq = ?1 AND handler = ?2 RETURNING order_key
