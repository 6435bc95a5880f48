-- Returns the places, from 0, of the messages and marks that are not stored.
-- $1 lane smallint[] (by message or mark)
-- $2 digest bytea[]
-- $3 handler text[]: key of a mark, NULL for a message
-- Index: primary keys of oncebox_proof and oncebox_mark.
SELECT (m.place - 1)::int4
FROM unnest($1::int2[], $2::bytea[], $3::text[]) WITH ORDINALITY AS m (lane, digest, handler, place)
WHERE NOT CASE WHEN m.handler IS NULL
      THEN EXISTS (SELECT 1 FROM oncebox_proof p WHERE p.lane = m.lane AND p.digest = m.digest)
      ELSE EXISTS (SELECT 1 FROM oncebox_mark k WHERE k.lane = m.lane AND k.digest = m.digest AND k.handler = m.handler) END
ORDER BY 1
