-- Extends the turn of a sweep until the next page, or ends it.
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- $3 sweep uuid or NULL to end
-- $4 turn bigint in ms
-- Index: primary key of oncebox_inbox.
-- Lock order: the row of oncebox_inbox.
UPDATE oncebox_inbox
SET sweeper = $3, sweeper_until = coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) + $4
WHERE id = $2 AND (sweeper IS NOT NULL OR $3::uuid IS NOT NULL)
