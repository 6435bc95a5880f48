-- Notes who may go, after ?4.
UPDATE oncebox_line SET seq = ?3 WHERE handler = ?1 AND order_key = ?2 AND seq = ?4
