-- Stores the result of a mark, once: a later call changes nothing. The concatenation with '' keeps the planner from the
-- index of ages.
-- $1 result bytea
-- $2 lane smallint
-- $3 digest bytea
-- $4 handler text: key
-- Index: primary key of oncebox_mark.
-- Lock order: the row of oncebox_mark.
UPDATE oncebox_mark SET result = $1 WHERE lane = $2 AND digest = $3 AND handler || '' = $4 AND result IS NULL
