-- Parks entries that wait behind an entry that parks.
-- ?1 handler
-- ?2 order_key
-- ?3 seq of the entry that parks
-- ?4 now
-- Index: primary key of oncebox_line, oncebox_entry_order.
INSERT INTO oncebox_poisoned
    (seq, handler, generation, token, at, attempts, crashes, reason, order_key, in_line, not_before, error)
SELECT seq, handler, generation, token, ?4, attempts, crashes, 'parked', order_key, 'parked', not_before, error
FROM oncebox_entry
WHERE handler = ?1 AND line = (SELECT number FROM oncebox_line WHERE handler = ?1 AND order_key = ?2)
  AND due = 9223372036854775807 AND seq > ?3
