-- Makes handlers one that turned out to be, with all that each of them had turned out to be before. $1 the handlers.
WITH joined AS MATERIALIZED (
    SELECT h.id, h.watermark FROM oncebox_handler h
    WHERE coalesce(h.same_as, h.id) IN (SELECT coalesce(o.same_as, o.id) FROM oncebox_handler o WHERE o.id = ANY ($1::int2[]))
    ORDER BY h.id FOR NO KEY UPDATE
)
UPDATE oncebox_handler h SET same_as = nullif((SELECT min(id) FROM joined), h.id), watermark = (SELECT max(watermark) FROM joined)
WHERE h.id IN (SELECT id FROM joined)
