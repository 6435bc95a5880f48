-- Reads settings of the server as other sessions have them, and its clock.
SELECT name, CASE WHEN name = 'synchronous_commit' THEN coalesce(reset_val, setting) ELSE setting END FROM pg_settings
WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum')
UNION ALL SELECT 'clock', (extract(epoch FROM clock_timestamp()) * 1000)::bigint::text
