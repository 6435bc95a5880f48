-- 0 rows before the first migration: the table itself may be missing, which the caller checks with schema_table.
SELECT max(version) FROM oncebox_schema
