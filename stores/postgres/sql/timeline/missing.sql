-- Returns the places, from 0, of the messages and marks that are not stored and cannot have left with their retention.
--
-- $1 lane smallint[] (by message or mark)
-- $2 digest bytea[]
-- $3 handler text[]: key of a mark, NULL for a message
-- $4 inbox smallint[]: inbox of a message
-- $5 age bigint[], milliseconds
--
-- Index: primary keys of oncebox_proof, oncebox_mark and oncebox_window.
SELECT (m.place - 1)::int4
FROM unnest($1::int2[], $2::bytea[], $3::text[], $4::int2[], $5::int8[]) WITH ORDINALITY AS m (lane, digest, handler, inbox, age, place)
WHERE NOT CASE WHEN m.handler IS NULL
      THEN EXISTS (SELECT 1 FROM oncebox_proof p WHERE p.lane = m.lane AND p.digest = m.digest)
      ELSE EXISTS (SELECT 1 FROM oncebox_mark k WHERE k.lane = m.lane AND k.digest = m.digest AND k.handler = m.handler) END
  AND NOT EXISTS (SELECT 1 FROM oncebox_window w WHERE w.span <= m.age AND (m.inbox IS NULL OR w.inbox = m.inbox))
ORDER BY 1
