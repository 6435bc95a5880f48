-- Deletes operations that are older than an age.
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- $3 age bigint in ms
-- $4 limit bigint
-- Index: oncebox_operation_age.
DELETE FROM oncebox_operation WHERE number = ANY (ARRAY(
    SELECT number FROM oncebox_operation
    WHERE inbox = $2 AND at <= coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) - $3
    ORDER BY at LIMIT $4
))
