-- Lists those of the given indexes that are missing or invalid.
-- $1 schema text
-- $2 names text[]
SELECT w.name, c.oid IS NULL
FROM unnest($2::text[]) AS w (name)
LEFT JOIN pg_class c ON c.relname = w.name AND c.relkind IN ('i', 'I') AND c.relnamespace = to_regnamespace(quote_ident($1))
LEFT JOIN pg_index i ON i.indexrelid = c.oid
WHERE c.oid IS NULL OR NOT i.indisvalid
ORDER BY w.name
