-- What nobody says any more, unless nothing was said since. $1 now or nothing, $2 inbox.
DELETE FROM @window w
WHERE w.inbox = $2 AND w.until < coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AND EXISTS (
    SELECT 1 FROM @window later WHERE later.inbox = w.inbox AND later.handler = w.handler AND later.until > w.until
)
