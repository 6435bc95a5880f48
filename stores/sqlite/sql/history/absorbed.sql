-- Reads how many deliveries of a message were absorbed. ?1 number of the message.
SELECT count, first, last, varied FROM oncebox_absorbed WHERE seq = ?1
