-- Writes settlements under their fence, and answers with the places of those whose claims held. $1 now or nothing; by
-- settlement: $2 place, $3 lane, $4 handler, $5 number, $6 token, $7 claim id, $8 next status, $9 delay, $10 attempts,
-- $11 crashes, $12 reason, $13 error, $14 what it is in its line, $15 what is kept of it as an attempt that failed.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), settlement AS MATERIALIZED (
    SELECT * FROM unnest($2::int4[], $3::int2[], $4::int2[], $5::int8[], $6::int8[], $7::uuid[], $8::text[], $9::int8[],
                         $10::int4[], $11::int4[], $12::text[], $13::text[], $14::text[], $15::text[])
         AS s (place, lane, handler, seq, token, claim_id, next, delay, attempts, crashes, reason, error, in_line, event)
), ended AS (
    DELETE FROM @entry r USING settlement s
    WHERE r.lane = s.lane AND r.handler = s.handler AND r.seq = s.seq AND r.token = s.token AND r.claim_id = s.claim_id
    RETURNING s.place, r.seq, r.lane, r.handler, r.token, coalesce(r.generation, 0) AS generation, r.order_key, s.next, s.delay, s.attempts, s.crashes,
              s.reason, s.in_line, coalesce(s.error, r.error) AS error, r.claim_id, s.event, s.error AS said
), finished AS (
    INSERT INTO @outcome (seq, token, at, attempts, crashes, generation, lane, handler, status, error)
    SELECT seq, token, now, attempts, crashes, generation, lane, handler, next, error
    FROM ended, moment WHERE next IN ('completed', 'discarded')
), failed AS (
    INSERT INTO @attempt (seq, token, at, attempts, crashes, generation, lane, handler, claim_id, event, error)
    SELECT seq, token, now, attempts, crashes, generation, lane, handler, claim_id, event, said
    FROM ended, moment WHERE event IS NOT NULL
), again AS (
    INSERT INTO @later (seq, due, not_before, token, attempts, crashes, generation, lane, handler, order_key, error)
    SELECT seq, CASE WHEN order_key IS NULL THEN least(now::numeric + delay, 9223372036854775807)::bigint
                     ELSE 9223372036854775807 END,
           least(now::numeric + delay, 9223372036854775807)::bigint, token, attempts, crashes, generation, lane, handler,
           order_key, error
    FROM ended, moment WHERE next = 'pending'
), spoiled AS (
    INSERT INTO @poisoned (seq, token, at, attempts, crashes, generation, lane, handler, reason, order_key, in_line, error)
    SELECT seq, token, now, attempts, crashes, generation, lane, handler, reason, order_key,
           CASE WHEN order_key IS NOT NULL THEN coalesce(in_line, 'blocks') END, error
    FROM ended, moment WHERE next = 'poisoned'
)
SELECT place FROM ended
