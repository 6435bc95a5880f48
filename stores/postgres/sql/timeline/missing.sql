-- Which of the given messages and marks are not stored: their places, from 0. By each: $1 lane, $2 key, $3 the handler of a mark, or
-- nothing for a message. Primary keys of proof and mark.
SELECT (m.place - 1)::int4
FROM unnest($1::int2[], $2::bytea[], $3::text[]) WITH ORDINALITY AS m (lane, digest, handler, place)
WHERE NOT CASE WHEN m.handler IS NULL
      THEN EXISTS (SELECT 1 FROM oncebox_proof p WHERE p.lane = m.lane AND p.digest = m.digest)
      ELSE EXISTS (SELECT 1 FROM oncebox_mark k WHERE k.lane = m.lane AND k.digest = m.digest AND k.handler = m.handler) END
ORDER BY 1
