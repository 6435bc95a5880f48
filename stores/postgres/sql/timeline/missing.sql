-- Which of the given messages and marks are not stored, and cannot have left with their retention: their places, from 0. By each: $1 lane,
-- $2 key, $3 the handler of a mark, or nothing for a message, $4 the inbox of a message, $5 age in milliseconds. Primary keys of proof,
-- mark and window.
SELECT (m.place - 1)::int4
FROM unnest($1::int2[], $2::bytea[], $3::text[], $4::int2[], $5::int8[]) WITH ORDINALITY AS m (lane, digest, handler, inbox, age, place)
WHERE NOT CASE WHEN m.handler IS NULL
      THEN EXISTS (SELECT 1 FROM oncebox_proof p WHERE p.lane = m.lane AND p.digest = m.digest)
      ELSE EXISTS (SELECT 1 FROM oncebox_mark k WHERE k.lane = m.lane AND k.digest = m.digest AND k.handler = m.handler) END
  AND NOT EXISTS (SELECT 1 FROM @window w WHERE w.span <= m.age AND (m.inbox IS NULL OR w.inbox = m.inbox))
ORDER BY 1
