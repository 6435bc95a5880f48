-- Adds to the duplicate count of a message; nothing for a message that has left meanwhile.
-- ?1 number of the message; ?2 how many; ?3 time of the first; ?4 time of the last; ?5 how many had another payload.
INSERT INTO oncebox_duplicate (seq, count, first, last, varied)
SELECT seq, ?2, ?3, ?4, ?5 FROM oncebox_message WHERE seq = ?1
ON CONFLICT (seq) DO UPDATE
SET count = count + excluded.count, first = min(first, excluded.first), last = max(last, excluded.last),
    varied = varied + excluded.varied
