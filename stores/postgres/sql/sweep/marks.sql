-- Deletes marks past the window of their handler, oldest of each handler first.
-- $1 now bigint or NULL (server clock)
-- $2 inbox text
-- $3 span bigint: of handlers without one, in ms
-- $4 limit bigint
-- $5 handler text[]: key (with a window)
-- $6 span bigint[] in ms
-- Index: oncebox_mark_age.
-- Lock order: oncebox_mark by age; skips locked rows.
WITH RECURSIVE moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), marked AS (
    -- The handlers that have marks: one index step each.
    (SELECT m.handler FROM oncebox_mark m WHERE m.inbox = $2 ORDER BY m.handler LIMIT 1)
    UNION ALL
    SELECT (SELECT m.handler FROM oncebox_mark m WHERE m.inbox = $2 AND m.handler > h.handler ORDER BY m.handler LIMIT 1)
    FROM marked h WHERE h.handler IS NOT NULL
)
DELETE FROM oncebox_mark WHERE ctid = ANY (ARRAY(
    SELECT old.tid
    FROM moment, marked h CROSS JOIN LATERAL (
        SELECT m.ctid AS tid FROM oncebox_mark m
        WHERE m.inbox = $2 AND m.handler = h.handler
          AND m.at <= moment.now - coalesce(($6::int8[])[array_position($5::text[], h.handler)], $3)
        ORDER BY m.at LIMIT $4 FOR UPDATE SKIP LOCKED
    ) old
    LIMIT $4
))
