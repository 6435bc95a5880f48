-- Takes away what an operator held a line back with. $1 lane, $2 handler, $3 order key.
DELETE FROM oncebox_poisoned WHERE lane = $1 AND handler = $2 AND order_key = $3 AND in_line = 'blocks' AND seq < 68719476736
