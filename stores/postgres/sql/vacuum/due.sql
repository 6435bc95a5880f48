-- Whether we may vacuum the hot table, whether too many rows that are gone are still in it, and how many.
SELECT pg_has_role(c.relowner, 'USAGE') OR pg_has_role(d.datdba, 'USAGE')
       OR CASE WHEN current_setting('server_version_num')::int >= 170000 THEN has_table_privilege(c.oid, 'MAINTAIN') ELSE false END,
       -- With a backlog, it takes longer to go through it.
       pg_stat_get_dead_tuples(c.oid) > 20000 + pg_stat_get_live_tuples(c.oid) / 10,
       pg_stat_get_dead_tuples(c.oid)
FROM pg_class c, pg_database d WHERE c.oid = 'oncebox_entry'::regclass AND d.datname = current_database()
