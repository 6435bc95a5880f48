-- Joins handlers that turned out to be one, with all handlers that each of them was joined with before. They share the
-- latest watermark.
-- $1 handlers smallint[]
-- Index: primary key of oncebox_handler.
-- Lock order: oncebox_handler by id.
WITH joined AS MATERIALIZED (
    SELECT h.id, h.watermark FROM oncebox_handler h
    WHERE coalesce(h.same_as, h.id) IN (SELECT coalesce(o.same_as, o.id) FROM oncebox_handler o WHERE o.id = ANY ($1::int2[]))
    ORDER BY h.id FOR NO KEY UPDATE
)
UPDATE oncebox_handler h SET same_as = nullif((SELECT min(id) FROM joined), h.id), watermark = (SELECT max(watermark) FROM joined)
WHERE h.id IN (SELECT id FROM joined)
