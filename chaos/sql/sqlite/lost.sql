-- A file does not fail over.
SELECT NULL WHERE false
