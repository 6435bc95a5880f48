-- Reads how many duplicates of a message were delivered. $1 number of the message.
SELECT count, first, last, varied FROM oncebox_duplicate WHERE lane = $1 & 63 AND seq = $1
