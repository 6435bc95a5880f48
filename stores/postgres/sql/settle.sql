-- name: settle
-- Writes settlements under their fence, in one call of the function `oncebox_settle_v1`. Returns one row: the places of the claims
-- that held, and the least number that became work, by lane and handler. The parameters from $8 to $14 are NULL if all
-- are completed.
-- The whole way, for every settlement. `settle.rs` chooses a faster statement for completions without an ordering key.
-- $1 now bigint or NULL (server clock)
-- $2 place integer[] (by settlement)
-- $3 lane smallint[]
-- $4 handler smallint[]
-- $5 seq bigint[]
-- $6 token bigint[]
-- $7 claim_id uuid[]
-- $8 next text[]: status
-- $9 delay bigint[] in ms
-- $10 attempts integer[]
-- $11 crashes integer[]
-- $12 reason text[]
-- $13 error text[]
-- $14 in_line text[]
-- $15 in_transaction boolean: true if the handler's own transaction must run it
-- $16 class integer: of the advisory locks
-- $17 number integer[]: of each lock
-- $18 event text[]: kind of a failed attempt (by settlement)
-- Index: primary key of oncebox_entry.
-- Lock order: advisory locks in the order of $17, then oncebox_entry.
SELECT places, lanes, handlers, seqs
FROM oncebox_settle_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18);

-- name: settle_complete
-- Completes claims under their fence. Returns one row: the places of those that held.
-- $1 now bigint or NULL (server clock)
-- $2 place integer[] (by claim)
-- $3 lane smallint[]
-- $4 handler smallint[]
-- $5 seq bigint[]
-- $6 token bigint[]
-- $7 claim_id uuid[]
-- Index: primary key of oncebox_entry.
-- Lock order: oncebox_entry in the order of the parameters, which all callers share.
WITH moment AS MATERIALIZED (
    -- Once, and not per row: it costs as much as an index lookup.
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), ended AS (
    DELETE FROM oncebox_entry r
    USING unnest($2::int4[], $3::int2[], $4::int2[], $5::int8[], $6::int8[], $7::uuid[])
          AS s (place, lane, handler, seq, token, claim_id)
    -- An array of one: the planner cannot join from the whole table, even if it believes that the table is empty.
    WHERE r.lane = ANY (ARRAY[s.lane]) AND r.handler = s.handler AND r.seq = s.seq
      AND r.token = s.token AND r.claim_id = s.claim_id
    RETURNING s.place, r.seq, r.lane, r.handler, r.token, r.attempts, r.crashes, r.generation, r.error
), finished AS (
    INSERT INTO oncebox_outcome (seq, token, at, attempts, crashes, generation, lane, handler, status, error)
    SELECT seq, token, (SELECT now FROM moment), coalesce(attempts, 0), coalesce(crashes, 0), coalesce(generation, 0), lane, handler,
           'completed', error
    FROM ended
)
SELECT array_agg(place) FROM ended;

-- name: settle_complete_one
-- Completes one claim under its fence, inside the transaction that its handler was given. Each session plans it once.
-- $1 now bigint or NULL (server clock)
-- $2 lane smallint
-- $3 handler smallint
-- $4 seq bigint
-- $5 token bigint
-- $6 claim_id uuid
-- Index: primary key of oncebox_entry.
-- Lock order: the row of oncebox_entry.
WITH ended AS (
    DELETE FROM oncebox_entry
    WHERE lane = $2 AND handler = $3 AND seq = $4 AND token = $5 AND claim_id = $6
      -- Only in the transaction that the handler was given.
      AND current_setting('oncebox.handler', true) = 'on'
    RETURNING seq, lane, handler, token, attempts, crashes, generation, error
)
INSERT INTO oncebox_outcome (seq, token, at, attempts, crashes, generation, lane, handler, status, error)
SELECT seq, token, coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint), coalesce(attempts, 0),
       coalesce(crashes, 0), coalesce(generation, 0), lane, handler, 'completed', error
FROM ended;

-- name: settle_finish
-- Runs the statement that `session_finish` prepared, for one claim. Sent as text together with the commit, with the values
-- in the place of the parameters. The server chooses the plans of handlers, but must not plan this while the table is empty,
-- and scan all of it once it is full.
-- Why: completion, commit and the next begin are one round trip instead of three (ADR 9).
-- $1 now bigint or NULL (server clock)
-- $2 lane smallint
-- $3 handler smallint
-- $4 seq bigint
-- $5 token bigint
-- $6 claim_id uuid
-- Index: primary key of oncebox_entry.
-- Lock order: the row of oncebox_entry.
SET LOCAL enable_seqscan = off;
EXECUTE finish_oncebox($1, $2, $3, $4, $5, $6);

-- name: settle_hold
-- Locks the rows of claims that hold. Returns their places.
-- $1 place integer[] (by claim)
-- $2 lane smallint[]
-- $3 handler smallint[]
-- $4 seq bigint[]
-- $5 token bigint[]
-- $6 claim_id uuid[]
-- Index: primary key of oncebox_entry.
-- Lock order: oncebox_entry in the order of the parameters, which all callers share, until the transaction ends.
SELECT place FROM oncebox_hold_v1($1, $2, $3, $4, $5, $6) AS place;

-- name: settle_settled_by
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
END;
