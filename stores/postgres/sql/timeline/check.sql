-- Checks a connection before its first claim: see the function. One row: the timeline and the latest epoch. $1 now or nothing, $2 the
-- greatest token that this process was given.
SELECT timeline, epoch FROM oncebox_check_timeline($1, $2)
