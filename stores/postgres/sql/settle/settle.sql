-- Writes settlements under their fence, all of it in one call: see the function. One row: the places of those whose claims held,
-- and by lane and handler the least number that became work. $1 now or nothing; by settlement: $2 place, $3 lane, $4 handler,
-- $5 number, $6 token, $7 claim id, $8 next status, $9 delay, $10 attempts, $11 crashes, $12 reason, $13 error, $14 what it is in its
-- line; from $8 on nothing if all are completed. $15 whether it must be in the transaction that a handler was given, $16 class
-- and $17 numbers of the locks of lines, $18 by settlement: what is kept of it as an attempt that failed.
SELECT places, lanes, handlers, seqs
FROM oncebox_settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
