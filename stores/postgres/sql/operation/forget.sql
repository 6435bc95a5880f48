-- $1 now or nothing, $2 inbox, $3 for how long they are kept, $4 how many.
DELETE FROM oncebox_operation WHERE number = ANY (ARRAY(
    SELECT number FROM oncebox_operation
    WHERE inbox = $2 AND at <= coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) - $3
    ORDER BY at LIMIT $4
))
