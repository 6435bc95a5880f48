-- A file does not fail over.
SELECT 0
