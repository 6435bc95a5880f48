-- name: timeline_check
-- Checks a connection before its first claim: see the function `oncebox_check_timeline_v1`. Returns the timeline and the latest
-- epoch.
-- $1 now bigint or NULL (server clock)
-- $2 token bigint: the greatest that this process was given
-- Lock order: the row of oncebox_meta, if the timeline changed.
SELECT timeline, epoch FROM oncebox_check_timeline_v1($1, $2);

-- name: timeline_latest
-- Lists the latest changes of the timeline, newest first.
-- $1 limit bigint
-- Index: primary key of oncebox_timeline.
SELECT epoch, noticed_at, former, timeline, lost_claims, lost_messages, lost_from, lost_until, lost_marks,
    unnamed, unnamed_since
FROM oncebox_timeline ORDER BY epoch DESC LIMIT $1;

-- name: timeline_lost
-- Adds what a process remembered and the database lost with an epoch.
-- $1 now bigint or NULL (server clock)
-- $2 epoch bigint
-- $3 source text[] (by message)
-- $4 id bytea[]
-- $5 age bigint in ms of the first acknowledgement
-- $6 age bigint in ms of the last one
-- $7 marks bigint: number of lost ones
-- $8 unnamed bigint: number of older commits that the process no longer knows by name
-- $9 age bigint or NULL, in ms of the first of them
-- Index: primary key of oncebox_timeline.
-- Lock order: the row of oncebox_timeline.
UPDATE oncebox_timeline t
SET lost_marks = lost_marks + $7, lost_messages = lost_messages + cardinality($4::bytea[]), lost_sources = lost_sources || $3::text[],
    lost_ids = lost_ids || $4::bytea[], lost_from = least(lost_from, m.now - $5), lost_until = greatest(lost_until, m.now - $6),
    unnamed = unnamed + $8, unnamed_since = least(unnamed_since, m.now - $9)
FROM (SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now) m
WHERE t.epoch = $2;

-- name: timeline_missing
-- Returns the places, from 0, of the messages and marks that are not stored and cannot have left with their retention.
-- $1 lane smallint[] (by message or mark)
-- $2 digest bytea[]
-- $3 handler text[]: key of a mark, NULL for a message
-- $4 inbox smallint[]: inbox of a message
-- $5 age bigint[], milliseconds
-- Index: primary keys of oncebox_proof, oncebox_mark and oncebox_window.
SELECT (m.place - 1)::int4
FROM unnest($1::int2[], $2::bytea[], $3::text[], $4::int2[], $5::int8[]) WITH ORDINALITY AS m (lane, digest, handler, inbox, age, place)
WHERE NOT CASE WHEN m.handler IS NULL
      THEN EXISTS (SELECT 1 FROM oncebox_proof p WHERE p.lane = m.lane AND p.digest = m.digest)
      ELSE EXISTS (SELECT 1 FROM oncebox_mark k WHERE k.lane = m.lane AND k.digest = m.digest AND k.handler = m.handler) END
  AND NOT EXISTS (SELECT 1 FROM oncebox_window w WHERE w.span <= m.age AND (m.inbox IS NULL OR w.inbox = m.inbox))
ORDER BY 1;
