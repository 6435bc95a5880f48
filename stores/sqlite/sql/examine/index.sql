-- Returns a row if an index exists.
-- ?1 name
SELECT 1 FROM sqlite_schema WHERE type = 'index' AND name = ?1
