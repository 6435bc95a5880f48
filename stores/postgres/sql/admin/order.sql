-- The line that an entry stands in, while it is not finished. $1 number, $2 handler.
SELECT order_key FROM oncebox_entry WHERE lane = $1 & 63 AND handler = $2 AND seq = $1
UNION ALL SELECT order_key FROM oncebox_scheduled WHERE lane = $1 & 63 AND seq = $1 AND handler = $2
UNION ALL SELECT order_key FROM oncebox_poisoned WHERE lane = $1 & 63 AND seq = $1 AND handler = $2
