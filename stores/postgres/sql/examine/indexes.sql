-- Those of the wanted indexes that are missing, or cannot be used. $1 schema, $2 names.
SELECT w.name, c.oid IS NULL
FROM unnest($2::text[]) AS w (name)
LEFT JOIN pg_class c ON c.relname = w.name AND c.relkind IN ('i', 'I') AND c.relnamespace = to_regnamespace(quote_ident($1))
LEFT JOIN pg_index i ON i.indexrelid = c.oid
WHERE c.oid IS NULL OR NOT i.indisvalid
ORDER BY w.name
