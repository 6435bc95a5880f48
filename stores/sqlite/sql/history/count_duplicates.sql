-- Adds to the duplicate count of a message. Skips a message that was swept.
-- ?1 seq
-- ?2 count
-- ?3 first time
-- ?4 last time
-- ?5 varied, count with another payload
-- Index: primary keys of oncebox_message and oncebox_duplicate.
INSERT INTO oncebox_duplicate (seq, count, first, last, varied)
SELECT seq, ?2, ?3, ?4, ?5 FROM oncebox_message WHERE seq = ?1
ON CONFLICT (seq) DO UPDATE
SET count = count + excluded.count, first = min(first, excluded.first), last = max(last, excluded.last),
    varied = varied + excluded.varied
