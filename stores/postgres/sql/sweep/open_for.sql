-- Returns for how long transactions of callers are open that accepted messages, in ms: 0 if there is none. Their numbers
-- are not visible yet.
-- $1 now bigint or NULL (server clock)
-- $2 class integer: of the locks of open transactions
-- Index: none: the locks are in the server's memory.
SELECT coalesce(greatest(
           coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) - min(l.objid::int8) * 60000, 0), 0)
FROM pg_locks l
WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.classid = $2::int4::oid AND l.granted
  AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
