-- Whether the table of versions is there, and the schema it belongs in. Read from the catalogue's tables: `to_regclass`
-- may answer from a cache that is older than the lock which a migration has just waited for.
SELECT EXISTS (
    SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = ':schema' AND c.relname = (parse_ident('"oncebox_schema"'))[1]
), EXISTS (SELECT 1 FROM pg_catalog.pg_namespace n WHERE n.nspname = ':schema')
