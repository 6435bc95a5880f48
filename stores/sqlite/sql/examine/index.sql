SELECT 1 FROM sqlite_schema WHERE type = 'index' AND name = ?1
