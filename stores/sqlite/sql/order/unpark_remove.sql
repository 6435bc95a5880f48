-- What `unpark` made pending.
DELETE FROM oncebox_poisoned
WHERE handler = ?1 AND order_key = ?2 AND in_line = 'parked' AND NOT EXISTS (
    SELECT 1 FROM oncebox_poisoned h
    WHERE h.handler = ?1 AND h.order_key = ?2 AND h.in_line = 'parks' AND h.seq < oncebox_poisoned.seq
)
