-- Lets those behind a poisoned entry pass. $1 number, $2 handler.
UPDATE oncebox_poisoned SET in_line = 'skipped'
WHERE lane = $1 & 63 AND seq = $1 AND handler = $2 AND in_line IN ('blocks', 'parks')
RETURNING seq
