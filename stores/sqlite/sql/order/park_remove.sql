-- What `park` parked.
DELETE FROM oncebox_entry
WHERE handler = ?1 AND line = (SELECT number FROM oncebox_line WHERE handler = ?1 AND order_key = ?2)
  AND due = 9223372036854775807 AND seq > ?3
