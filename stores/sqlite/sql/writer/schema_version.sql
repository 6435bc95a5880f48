-- Reads the latest applied migration. The caller checks with `schema_table` that the table exists.
SELECT max(version) FROM oncebox_schema
