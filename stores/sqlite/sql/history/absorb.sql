-- Nothing for a message that has left meanwhile.
INSERT INTO oncebox_absorbed (seq, count, first, last)
SELECT seq, ?2, ?3, ?4 FROM oncebox_message WHERE seq = ?1
ON CONFLICT (seq) DO UPDATE
SET count = count + excluded.count, first = min(first, excluded.first), last = max(last, excluded.last)
