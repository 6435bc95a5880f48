-- The history of messages that are not remembered any more, of one page of a sweep. $1 the number it went on after, $2 the last one
-- it looked at, $3 all lanes.
WITH attempts AS (
    DELETE FROM @attempt a WHERE a.lane = ANY ($3::int2[]) AND a.seq > $1 AND a.seq <= $2
      AND NOT EXISTS (SELECT 1 FROM @proof p WHERE p.seq = a.seq)
)
DELETE FROM @absorbed a WHERE a.lane = ANY ($3::int2[]) AND a.seq > $1 AND a.seq <= $2
  AND NOT EXISTS (SELECT 1 FROM @proof p WHERE p.seq = a.seq)
