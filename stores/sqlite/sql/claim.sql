-- name: claim_held
-- Returns the entries that a claim id holds, with their messages. Also finds a claim whose answer was lost. The columns
-- of a missing message are NULL: then the caller poisons the entry.
-- ?1 claim_id
-- Index: primary keys of oncebox_running and oncebox_message.
SELECT r.seq, r.handler, r.token, r.claimed_at, r.attempts, r.crashes, r.generation, r.order_key, r.due,
       m.digest, m.received_at, m.time, m.tenant, m.source, m.id, m.type, m.ordering_key, m.headers, m.payload,
       r.alone
FROM oncebox_running r
LEFT JOIN oncebox_message m ON m.seq = r.seq
WHERE r.claim_id = ?1;

-- name: claim_peek
-- Reads the entries that `claim_take` would take. For handlers with former keys, whose entries share one order.
-- ?1 handler
-- ?2 now
-- ?3 limit
-- Index: oncebox_entry_due.
SELECT due, seq, order_key IS NOT NULL FROM oncebox_entry
WHERE handler = ?1 AND due <= ?2 AND due <> 9223372036854775807 AND crashes = 0
ORDER BY due, seq
LIMIT ?3;

-- name: claim_peek_in_turn
-- The same as `claim_peek`, without entries that wait for an earlier one under another key of the handler.
-- ?1 handler
-- ?2 now
-- ?3 limit
-- ?4 handlers, all keys of this one as JSON
-- Index: oncebox_entry_due, primary key of oncebox_line, oncebox_poisoned_order.
SELECT e.due, e.seq FROM oncebox_entry e
WHERE e.handler = ?1 AND e.due <= ?2 AND e.due <> 9223372036854775807 AND e.crashes = 0
  AND (e.order_key IS NULL OR NOT EXISTS (
    SELECT 1 FROM json_each(?4) k WHERE k.value <> e.handler AND (
        -- A waiting entry has a released or poisoned one before it. A running entry keeps all others waiting.
        EXISTS (SELECT 1 FROM oncebox_line l WHERE l.handler = k.value AND l.order_key = e.order_key AND l.seq > 0 AND (
            l.seq < e.seq OR NOT EXISTS (SELECT 1 FROM oncebox_entry o WHERE o.seq = l.seq AND o.handler = l.handler)
        ))
        OR EXISTS (SELECT 1 FROM oncebox_poisoned o WHERE o.handler = k.value AND o.order_key = e.order_key
            AND o.in_line IN ('blocks', 'parks') AND o.seq < e.seq)
    )
  ))
ORDER BY e.due, e.seq
LIMIT ?3;

-- name: claim_peek_suspects
-- Reads due entries of a handler that crashed a worker, oldest due first. An earlier entry under another key of the
-- handler keeps them waiting, too.
-- ?1 handler
-- ?2 now
-- ?3 handlers, all keys of this one as JSON
-- ?4 crashes, only this suspicion, or NULL
-- ?5 limit
-- Index: oncebox_entry_suspect, primary key of oncebox_line, oncebox_poisoned_order.
SELECT e.due, e.seq, e.crashes
FROM oncebox_entry e INDEXED BY oncebox_entry_suspect
WHERE e.handler = ?1 AND e.due <= ?2 AND e.crashes > 0 AND (?4 IS NULL OR e.crashes = ?4)
  AND (e.order_key IS NULL OR NOT EXISTS (
    SELECT 1 FROM json_each(?3) k WHERE k.value <> e.handler AND (
        -- A waiting entry has a released or poisoned one before it. A running entry keeps all others waiting.
        EXISTS (SELECT 1 FROM oncebox_line l WHERE l.handler = k.value AND l.order_key = e.order_key AND l.seq > 0 AND (
            l.seq < e.seq OR NOT EXISTS (SELECT 1 FROM oncebox_entry o WHERE o.seq = l.seq AND o.handler = l.handler)
        ))
        OR EXISTS (SELECT 1 FROM oncebox_poisoned o WHERE o.handler = k.value AND o.order_key = e.order_key
            AND o.in_line IN ('blocks', 'parks') AND o.seq < e.seq)
    )
  ))
ORDER BY e.due, e.seq
LIMIT ?5;

-- name: claim_remove
-- Deletes the pending rows of the entries that `claim_take` took.
-- ?1 claim_id
-- ?2 handler
-- Index: primary keys of oncebox_running and oncebox_entry.
DELETE FROM oncebox_entry
WHERE handler = ?2 AND seq IN (SELECT seq FROM oncebox_running WHERE claim_id = ?1 AND handler = ?2);

-- name: claim_remove_one
-- Deletes the pending row of the entry that `claim_take_one` took.
-- ?1 handler
-- ?2 due
-- ?3 seq
-- Index: primary key of oncebox_entry.
DELETE FROM oncebox_entry WHERE seq = ?3 AND handler = ?1 AND +due = ?2;

-- name: claim_take
-- Leases the first due entries of one handler in the order of their index. The cost depends on the number of entries,
-- not on the backlog.
-- ?1 claim_id
-- ?2 token
-- ?3 now
-- ?4 lease_until
-- ?5 handler
-- ?6 limit
-- ?7 owner or NULL
-- Index: oncebox_entry_due.
INSERT INTO oncebox_running
    (claim_id, seq, handler, token, due, claimed_at, lease_until, attempts, crashes, generation, order_key, error,
     owner)
SELECT ?1, seq, handler, ?2, due, ?3, ?4, attempts, crashes, generation, order_key, error, ?7
FROM oncebox_entry
WHERE handler = ?5 AND due <= ?3 AND due <> 9223372036854775807 AND crashes = 0
ORDER BY due, seq
LIMIT ?6;

-- name: claim_take_one
-- Leases one entry that `claim_peek_in_turn` or `claim_peek_suspects` found.
-- ?1 claim_id
-- ?2 token
-- ?3 now
-- ?4 lease_until
-- ?5 handler
-- ?6 due
-- ?7 seq
-- ?8 alone, 1 if it is the only run of its worker
-- ?9 owner or NULL
-- Index: primary key of oncebox_entry.
INSERT INTO oncebox_running
    (claim_id, seq, handler, token, due, claimed_at, lease_until, attempts, crashes, generation, order_key, error,
     alone, owner)
SELECT ?1, seq, handler, ?2, due, ?3, ?4, attempts, crashes, generation, order_key, error, ?8, ?9
FROM oncebox_entry WHERE seq = ?7 AND handler = ?5 AND +due = ?6;
