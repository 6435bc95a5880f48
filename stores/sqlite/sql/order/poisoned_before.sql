-- A poisoned entry blocks those behind it.
SELECT EXISTS (SELECT 1 FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2 AND seq < ?3)
