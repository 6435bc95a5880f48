-- Returns a row with the setting that names the standbys, if commits in this database wait for synchronous replication.
SELECT current_setting('synchronous_standby_names')
WHERE EXISTS (SELECT 1 FROM pg_stat_activity a WHERE a.datname = current_database() AND a.wait_event = 'SyncRep')
