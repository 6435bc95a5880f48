-- Reads how many deliveries of a message were absorbed. $1 number of the message.
SELECT count, first, last, varied FROM @absorbed WHERE lane = $1 & 63 AND seq = $1
