-- Begins an accept in a transaction of a caller: compares the tables with those of the store, and locks the minute of its
-- start. Sweeps see the lock, and do not pass the numbers of the transaction. Returns true if the tables are those of the
-- store.
-- $1 class integer: of the locks of open transactions
-- $2 now bigint or NULL (server clock)
-- $3 incarnation text: of the tables
-- Lock order: the advisory lock of the minute, shared, which no statement takes alone; until the transaction ends.
SELECT (SELECT i.incarnation = $3::text::uuid FROM oncebox_meta i WHERE i.one),
       pg_advisory_xact_lock_shared($1, (coalesce($2, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) / 60000)::int4)
