-- Which of these settlements were written before, by a call whose answer was lost. By settlement: $1 place, $2 lane, $3
-- number, $4 handler, $5 token, $6 next status.
SELECT s.place
FROM unnest($1::int4[], $2::int2[], $3::int8[], $4::int2[], $5::int8[], $6::text[]) AS s (place, lane, seq, handler, token, next)
-- History may be there a while longer than what is remembered.
WHERE (SELECT p.seq FROM oncebox_proof p WHERE p.seq = s.seq LIMIT 1) IS NOT NULL AND CASE s.next
    WHEN 'pending' THEN EXISTS (
        SELECT 1 FROM oncebox_scheduled e WHERE e.lane = s.lane AND e.seq = s.seq AND e.handler = s.handler AND e.token = s.token)
        -- It may have been parked at once.
        OR EXISTS (
        SELECT 1 FROM oncebox_poisoned e WHERE e.lane = s.lane AND e.seq = s.seq AND e.handler = s.handler AND e.token = s.token
          AND e.in_line = 'parked')
    WHEN 'poisoned' THEN EXISTS (
        SELECT 1 FROM oncebox_poisoned e WHERE e.lane = s.lane AND e.seq = s.seq AND e.handler = s.handler AND e.token = s.token)
    ELSE EXISTS (
        SELECT 1 FROM oncebox_outcome e WHERE e.lane = s.lane AND e.seq = s.seq AND e.handler = s.handler AND e.token = s.token
          AND e.status = s.next)
END
