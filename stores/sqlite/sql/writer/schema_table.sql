-- Returns 1 if the table of applied migrations exists, else 0.
SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'oncebox_schema'
