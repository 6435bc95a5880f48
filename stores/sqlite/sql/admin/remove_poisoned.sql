DELETE FROM oncebox_poisoned WHERE seq = ?1 AND handler = ?2 RETURNING order_key
