-- Writes settlements under their fence, all of it in one call: see the function. Answers with the places of those whose claims held,
-- and with the least number that became work in each lane and handler. $1 now or nothing; by settlement: $2 place, $3 lane,
-- $4 handler, $5 number, $6 token, $7 claim id, $8 next status, $9 delay, $10 attempts, $11 crashes, $12 reason, $13 error, $14 what
-- it is in its line; from $8 on nothing if all are completed. $15 whether it must be in the transaction that a handler was
-- given, $16 class and $17 numbers of the locks of lines; by line: $18 lane, $19 handler, $20 order key.
SELECT place, lane, handler, seq
FROM @settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)
