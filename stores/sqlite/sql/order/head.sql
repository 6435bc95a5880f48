-- The first waiting entry: one step into the partial index, however many wait behind it.
SELECT seq, due, not_before FROM oncebox_entry WHERE handler = ?1 AND order_key = ?2 ORDER BY seq LIMIT 1
