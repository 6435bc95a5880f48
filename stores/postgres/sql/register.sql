-- name: register
-- Registers windows of handlers. Skips a write if the window was registered recently.
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- $3 hold bigint in ms
-- $4 handler text[]: key, empty for the inbox (by window)
-- $5 span bigint[] in ms
-- Index: primary key of oncebox_window.
-- Lock order: oncebox_window by (handler, span).
INSERT INTO oncebox_window AS w (inbox, handler, span, until)
SELECT $2, o.handler, o.span, coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) + $3
FROM unnest($4::text[], $5::int8[]) AS o (handler, span)
ORDER BY o.handler, o.span
ON CONFLICT (inbox, handler, span) DO UPDATE SET until = excluded.until WHERE w.until < excluded.until - $3 / 2;

-- name: register_forget
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
));

-- name: register_set_tenants
-- Stores the tenants setting of an inbox, unless another process changed it since it was read.
-- $1 inbox smallint
-- $2 setting text
-- $3 setting text: as read, or NULL
-- Index: primary key of oncebox_inbox.
-- Lock order: the row of oncebox_inbox.
UPDATE oncebox_inbox SET tenants = $2 WHERE id = $1 AND tenants IS NOT DISTINCT FROM $3;

-- name: register_tenants
-- Reads the tenants setting of an inbox, as a process registered it.
-- $1 inbox smallint
-- Index: primary key of oncebox_inbox.
SELECT tenants FROM oncebox_inbox WHERE id = $1;

-- name: register_windows
-- Reads all registered windows of an inbox, and the time.
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- Index: primary key of oncebox_window.
SELECT w.handler, w.span, w.until, coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint)
FROM (SELECT 1) one LEFT JOIN oncebox_window w ON w.inbox = $2;
