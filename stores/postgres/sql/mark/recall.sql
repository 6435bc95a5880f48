-- Reads the result of a mark. A separate statement: the one that marks cannot see what was committed after it began. The
-- concatenation with '' keeps the planner from the index of ages.
-- $1 lane smallint
-- $2 digest bytea
-- $3 handler text: key
-- Index: primary key of oncebox_mark.
SELECT result FROM oncebox_mark WHERE lane = $1 AND digest = $2 AND handler || '' = $3
