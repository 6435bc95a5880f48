-- What holds an entry back, if anything does: one that parks says more than one that only blocks.
SELECT max(in_line) FROM oncebox_poisoned
WHERE handler = ?1 AND order_key = ?2 AND in_line IN ('blocks', 'parks') AND seq < ?3
