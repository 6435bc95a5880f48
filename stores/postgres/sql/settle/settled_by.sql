-- Returns the settlements that an earlier call with a lost answer wrote.
-- $1 place integer[] (by settlement)
-- $2 lane smallint[]
-- $3 seq bigint[]
-- $4 handler smallint[]
-- $5 token bigint[]
-- $6 next text[]: status
-- Index: primary keys of oncebox_scheduled, oncebox_poisoned and oncebox_outcome, oncebox_proof_seq.
SELECT s.place
FROM unnest($1::int4[], $2::int2[], $3::int8[], $4::int2[], $5::int8[], $6::text[]) AS s (place, lane, seq, handler, token, next)
-- Outcomes may outlive their proofs.
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
