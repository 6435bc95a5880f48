-- Deletes windows that expired, where a later registration exists. Skips a row that another process is registering.
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- Index: primary key of oncebox_window.
-- Lock order: oncebox_window; skips locked rows.
DELETE FROM oncebox_window WHERE ctid = ANY (ARRAY(
    SELECT w.ctid FROM oncebox_window w
    WHERE w.inbox = $2 AND w.until < coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AND EXISTS (
        SELECT 1 FROM oncebox_window later WHERE later.inbox = w.inbox AND later.handler = w.handler AND later.until > w.until
    )
    -- Registration waits for rows in their order; this statement skips locked rows.
    FOR UPDATE OF w SKIP LOCKED
))
