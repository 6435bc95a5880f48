-- Lists transactions that hold vacuum back for longer than $1 seconds. A role without the right to see other sessions
-- sees its own.
-- $1 seconds float8
SELECT 'session ' || pid || coalesce(' of ' || usename, '') || ' (' || coalesce(state, 'unknown') || ')',
       extract(epoch FROM clock_timestamp() - xact_start)::bigint
FROM pg_stat_activity
WHERE datname = current_database() AND xact_start < clock_timestamp() - make_interval(secs => $1) AND pid <> pg_backend_pid()
UNION ALL
SELECT 'the prepared transaction ' || gid, extract(epoch FROM clock_timestamp() - prepared)::bigint
FROM pg_prepared_xacts WHERE database = current_database() AND prepared < clock_timestamp() - make_interval(secs => $1)
