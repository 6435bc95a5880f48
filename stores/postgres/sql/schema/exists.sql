-- Returns true if the table of migrations exists, and true if its schema exists. Reads the catalogue's tables:
-- `to_regclass` may answer from a cache that is older than the lock of a migration.
SELECT EXISTS (
    SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = ':schema' AND c.relname = (parse_ident('"oncebox_schema"'))[1]
), EXISTS (SELECT 1 FROM pg_catalog.pg_namespace n WHERE n.nspname = ':schema')
