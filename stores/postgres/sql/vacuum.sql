-- name: vacuum_due
-- Returns true if the role may vacuum the hot table, true if it has too many dead rows, and their number.
SELECT pg_has_role(c.relowner, 'USAGE') OR pg_has_role(d.datdba, 'USAGE')
       OR CASE WHEN current_setting('server_version_num')::int >= 170000 THEN has_table_privilege(c.oid, 'MAINTAIN') ELSE false END,
       -- A vacuum takes longer with a backlog.
       pg_stat_get_dead_tuples(c.oid) > 20000 + pg_stat_get_live_tuples(c.oid) / 10,
       pg_stat_get_dead_tuples(c.oid)
FROM pg_class c, pg_database d WHERE c.oid = 'oncebox_entry'::regclass AND d.datname = current_database();

-- name: vacuum_run
-- Frees the space of dead rows for new ones. Waits for no lock, and blocks no reader or writer. TRUNCATE would block
-- them, and the space is needed again at once.
VACUUM (SKIP_LOCKED, TRUNCATE false) oncebox_entry;
