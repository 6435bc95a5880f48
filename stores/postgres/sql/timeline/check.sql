-- Checks a connection before its first claim: see the function `check_timeline`. Returns the timeline and the latest
-- epoch.
-- $1 now bigint or NULL (server clock)
-- $2 token bigint: the greatest that this process was given
-- Lock order: the row of oncebox_meta, if the timeline changed.
SELECT timeline, epoch FROM oncebox_check_timeline($1, $2)
