-- name: schema_add
-- Records an applied migration.
-- $1 version integer
-- $2 name text
INSERT INTO oncebox_schema (version, name) VALUES ($1, $2);

-- name: schema_create
-- Creates the table of applied migrations.
CREATE TABLE IF NOT EXISTS oncebox_schema (version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now());

-- name: schema_create_schema
-- Creates the schema.
CREATE SCHEMA IF NOT EXISTS "public";

-- name: schema_exists
-- Returns true if the table of migrations exists, and true if its schema exists. Reads the catalogue's tables:
-- `to_regclass` may answer from a cache that is older than the lock of a migration.
SELECT EXISTS (
    SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'public' AND c.relname = (parse_ident('"oncebox_schema"'))[1]
), EXISTS (SELECT 1 FROM pg_catalog.pg_namespace n WHERE n.nspname = 'public');

-- name: schema_grants
-- Grants a role everything that it needs to use the tables without owning them. `"application"` stands for the role.
GRANT USAGE ON SCHEMA "public" TO "application";
GRANT SELECT ON oncebox_schema TO "application";
GRANT SELECT, UPDATE ON oncebox_meta, oncebox_partition TO "application";
GRANT SELECT, INSERT, UPDATE ON oncebox_inbox, oncebox_handler, oncebox_handler_key, oncebox_timeline TO "application";
GRANT SELECT, INSERT, UPDATE, DELETE ON oncebox_window, oncebox_sweep_cursor TO "application";
GRANT SELECT, INSERT, UPDATE, DELETE ON oncebox_proof, oncebox_operation, oncebox_duplicate,
    oncebox_attempt, oncebox_entry, oncebox_scheduled,
    oncebox_claim, oncebox_poisoned, oncebox_quarantine, oncebox_mark TO "application";
GRANT SELECT, INSERT, DELETE ON oncebox_message TO "application";
GRANT SELECT, INSERT, UPDATE, DELETE ON oncebox_outcome TO "application";
GRANT SELECT, DELETE ON oncebox_message_kept, oncebox_outcome_kept TO "application";
GRANT USAGE, SELECT ON SEQUENCE oncebox_counter TO "application";
GRANT USAGE, SELECT, UPDATE ON SEQUENCE oncebox_token TO "application";
GRANT EXECUTE ON FUNCTION oncebox_make_partition_v1, oncebox_drop_payload_v1, oncebox_drop_partition_v1,
    oncebox_accept_v1, oncebox_accept_new_v1, oncebox_settle_v1, oncebox_release_v1, oncebox_park_v1,
    oncebox_wait_turn_v1, oncebox_hold_v1, oncebox_mark_v1 TO "application";

-- name: schema_grant_vacuum
-- Grants a role the right to vacuum the hot table. PostgreSQL 17 and later know it. `"application"` stands for the role.
GRANT MAINTAIN ON oncebox_entry TO "application";

-- name: schema_former_functions
-- Lists functions of earlier builds: those of which this build has a later version. Returns their names, and the statement
-- that drops each.
-- $1 names text[]: of the functions of this build
SELECT p.proname::text, format('DROP FUNCTION %s', p.oid::regprocedure)
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
JOIN unnest($1::text[]) AS w (name) ON regexp_replace(w.name, '_v[0-9]+$', '') = regexp_replace(p.proname, '_v[0-9]+$', '')
WHERE n.nspname = 'public' AND substring(p.proname FROM '_v([0-9]+)$')::int < substring(w.name FROM '_v([0-9]+)$')::int
ORDER BY 1;

-- name: schema_functions
-- Lists those of some functions that exist. Reads the catalogue's tables, as `schema_exists` does.
-- $1 names text[]
SELECT p.proname::text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = 'public' AND p.proname = ANY ($1::text[]);

-- name: schema_inherit_grants
-- Lets roles execute every version of a function of which they may execute one: a new version has the grants of the former.
DO $body$
DECLARE
    granted record;
BEGIN
    FOR granted IN
        SELECT DISTINCT p.oid::regprocedure AS function, a.grantee::regrole AS role
        FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        JOIN pg_proc former ON former.pronamespace = p.pronamespace AND former.oid <> p.oid
         AND regexp_replace(former.proname, '_v[0-9]+$', '') = regexp_replace(p.proname, '_v[0-9]+$', '')
        CROSS JOIN LATERAL aclexplode(former.proacl) a
        WHERE n.nspname = 'public' AND starts_with(p.proname, (parse_ident('"oncebox_"'))[1])
          AND p.proname ~ '_v[0-9]+$' AND former.proname ~ '_v[0-9]+$' AND pg_has_role(p.proowner, 'USAGE')
          AND a.privilege_type = 'EXECUTE' AND a.grantee NOT IN (0, p.proowner)
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', granted.function, granted.role);
    END LOOP;
END $body$;

-- name: schema_lock
-- Lets one process at a time migrate.
-- $1 lock bigint: number
-- Lock order: the advisory lock, until the transaction ends.
SELECT pg_advisory_xact_lock($1);

-- name: schema_meta
-- Reads what all processes of the store share: the number of lanes, and the identity of the tables.
SELECT lanes, incarnation FROM oncebox_meta;

-- name: schema_recovering
-- Returns true if the server is a standby.
SELECT pg_is_in_recovery();

-- name: schema_start
-- Inserts the row that all processes share and creates the first partitions, once.
-- $1 lanes smallint
-- Lock order: none: no other process uses the tables yet.
INSERT INTO oncebox_meta (lanes, partition_id, counted, timeline)
SELECT $1, 1, 0, oncebox_here_v1() WHERE NOT EXISTS (SELECT 1 FROM oncebox_meta);
SELECT oncebox_make_partition_v1(first.id)
FROM generate_series(1::bigint, 2) AS first (id) WHERE NOT EXISTS (SELECT 1 FROM oncebox_partition);

-- name: schema_version
-- Reads the latest applied migration; 0 for none.
SELECT coalesce(max(version), 0) FROM oncebox_schema;

-- name: schema_waiting
-- Returns a row with the setting that names the standbys, if commits in this database wait for synchronous replication.
SELECT current_setting('synchronous_standby_names')
WHERE EXISTS (SELECT 1 FROM pg_stat_activity a WHERE a.datname = current_database() AND a.wait_event = 'SyncRep');
