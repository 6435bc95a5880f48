-- What nobody says any more, unless nothing was said since. What another process is just saying is left. $1 now or nothing, $2 inbox.
DELETE FROM oncebox_window WHERE ctid = ANY (ARRAY(
    SELECT w.ctid FROM oncebox_window w
    WHERE w.inbox = $2 AND w.until < coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AND EXISTS (
        SELECT 1 FROM oncebox_window later WHERE later.inbox = w.inbox AND later.handler = w.handler AND later.until > w.until
    )
    -- Registering waits for rows in their order; this waits for nobody.
    FOR UPDATE OF w SKIP LOCKED
))
