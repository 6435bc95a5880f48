-- Names the server and its timeline; 'unknown' on a service that hides them. Refuses a standby.
CREATE FUNCTION oncebox_here_v1() RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'the server is a standby' USING ERRCODE = 'read_only_sql_transaction';
    END IF;
    RETURN (SELECT system_identifier FROM pg_control_system())
        || '/' || ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int;
EXCEPTION
    WHEN insufficient_privilege OR undefined_function OR feature_not_supported OR object_not_in_prerequisite_state
        OR internal_error THEN RETURN 'unknown';
END $body$;
