-- Lets the first of each line go that may, and parks those behind one that parks: see the function. Answers with the least number
-- that became work in each lane and handler. Needs the lock of the lines, taken by an earlier statement. $1 now or nothing,
-- by line: $2 lane, $3 handler, $4 order key.
SELECT lane, handler, seq FROM oncebox_release($1, $2, $3, $4, false)
