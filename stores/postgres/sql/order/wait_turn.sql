-- Parks whoever was let go although an older one of its line has come since: see the function. Needs the lock of the lines, taken
-- by an earlier statement. By line: $1 lane, $2 handler, $3 order key.
SELECT oncebox_wait_turn($1, $2, $3)
