-- ?1 number of the record, ?2 answer.
UPDATE oncebox_operation SET answer = ?2 WHERE number = ?1
