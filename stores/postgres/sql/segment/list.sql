-- Segments that nothing is added to any more. $1 the segment new messages go to.
SELECT id, ended_at, payload FROM @segment WHERE id < $1 AND ended_at IS NOT NULL ORDER BY id
