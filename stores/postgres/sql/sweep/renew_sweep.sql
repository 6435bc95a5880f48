-- Keeps others away until the next page, or lets them if there is none. $1 now or nothing, $2 inbox, $3 the sweep or nothing,
-- $4 for how long.
UPDATE oncebox_inbox
SET sweeper = $3, sweeper_until = coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) + $4
WHERE id = $2 AND (sweeper IS NOT NULL OR $3::uuid IS NOT NULL)
