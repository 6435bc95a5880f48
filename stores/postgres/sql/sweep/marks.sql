-- $1 now or nothing, $2 inbox, $3 retention, $4 how many at most.
DELETE FROM @mark WHERE ctid = ANY (ARRAY(
    SELECT m.ctid FROM @mark m
    WHERE m.inbox = $2 AND m.at <= coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) - $3
    ORDER BY m.at LIMIT $4 FOR UPDATE SKIP LOCKED
))
