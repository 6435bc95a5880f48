-- name: order_begin
-- Begins an order queue.
-- ?1 handler
-- ?2 order_key
-- ?3 number, the first entry
-- ?4 seq of the entry that may run, or 0
INSERT INTO oncebox_line (handler, order_key, number, seq) VALUES (?1, ?2, ?3, ?4);

-- name: order_end
-- Deletes an order queue without a released or waiting entry.
-- ?1 handler
-- ?2 order_key
-- Index: primary key of oncebox_line, oncebox_entry_order.
DELETE FROM oncebox_line
WHERE handler = ?1 AND order_key = ?2 AND seq = 0
  AND NOT EXISTS (SELECT 1 FROM oncebox_entry e WHERE e.handler = ?1 AND e.line = oncebox_line.number AND e.due = 9223372036854775807);

-- name: order_go
-- Resumes an order key that an operator paused: deletes its row.
-- ?1 handler
-- ?2 order_key
-- Index: oncebox_poisoned_order.
DELETE FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2 AND in_line = 'blocks' AND seq < 0;

-- name: order_let_go
-- Releases a waiting entry: sets the due time that it asked for, or now if that is over. The greatest integer stands for
-- waiting entries.
-- ?1 seq
-- ?2 handler
-- ?3 now
-- Index: primary key of oncebox_entry.
UPDATE oncebox_entry SET due = min(max(not_before, ?3), 9223372036854775806), not_before = 0
WHERE seq = ?1 AND handler = ?2 AND +due = 9223372036854775807;

-- name: order_look
-- Reads the state of an order queue for an entry that joins it: the effect of earlier poisoned entries, where `parks`
-- wins over `blocks`; the number of the queue; the entry that may run; and the first waiting one. Each takes one index
-- step, however many wait. Each kind of poisoned entry has its own subquery: SQLite would build a table from a list,
-- every time.
-- ?1 handler
-- ?2 order_key
-- ?3 seq of the entry
-- Index: oncebox_poisoned_order, primary key of oncebox_line, oncebox_entry_order.
SELECT CASE WHEN EXISTS (SELECT 1 FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2) THEN CASE
           WHEN EXISTS (SELECT 1 FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2 AND in_line = 'parks' AND seq < ?3) THEN 'parks'
           WHEN EXISTS (SELECT 1 FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2 AND in_line = 'blocks' AND seq < ?3) THEN 'blocks'
       END END,
       l.number, l.seq,
       (SELECT seq FROM oncebox_entry WHERE handler = ?1 AND line = l.number AND due = 9223372036854775807 ORDER BY seq LIMIT 1)
FROM (SELECT 1) LEFT JOIN oncebox_line l ON l.handler = ?1 AND l.order_key = ?2;

-- name: order_next
-- Finds the first waiting entry, which may run after entry ?3 ended, and reports if a poisoned entry blocks it.
-- ?1 handler
-- ?2 order_key
-- ?3 seq of the entry that ended
-- Index: primary key of oncebox_line, oncebox_entry_order, oncebox_poisoned_order.
SELECT e.seq,
       CASE WHEN EXISTS (SELECT 1 FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2) THEN
           EXISTS (SELECT 1 FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2 AND in_line = 'blocks' AND seq < e.seq)
           OR EXISTS (SELECT 1 FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2 AND in_line = 'parks' AND seq < e.seq)
       ELSE 0 END
FROM oncebox_line l CROSS JOIN oncebox_entry e ON e.handler = l.handler AND e.line = l.number
WHERE l.handler = ?1 AND l.order_key = ?2 AND l.seq = ?3 AND e.due = 9223372036854775807
ORDER BY e.seq LIMIT 1;

-- name: order_park
-- Parks entries that wait behind an entry that parks.
-- ?1 handler
-- ?2 order_key
-- ?3 seq of the entry that parks
-- ?4 now
-- Index: primary key of oncebox_line, oncebox_entry_order.
INSERT INTO oncebox_poisoned
    (seq, handler, generation, token, at, attempts, crashes, reason, order_key, in_line, not_before, error)
SELECT seq, handler, generation, token, ?4, attempts, crashes, 'parked', order_key, 'parked', not_before, error
FROM oncebox_entry
WHERE handler = ?1 AND line = (SELECT number FROM oncebox_line WHERE handler = ?1 AND order_key = ?2)
  AND due = 9223372036854775807 AND seq > ?3;

-- name: order_park_remove
-- Deletes the pending rows of the entries that `order_park` parked.
-- ?1 handler
-- ?2 order_key
-- ?3 seq of the entry that parks
-- Index: primary key of oncebox_line, oncebox_entry_order.
DELETE FROM oncebox_entry
WHERE handler = ?1 AND line = (SELECT number FROM oncebox_line WHERE handler = ?1 AND order_key = ?2)
  AND due = 9223372036854775807 AND seq > ?3;

-- name: order_pass_on
-- Stores the entry of an order queue that may run.
-- ?1 handler
-- ?2 order_key
-- ?3 seq of the entry that may run, or 0
-- ?4 seq of the one before, or 0
-- Index: primary key of oncebox_line.
UPDATE oncebox_line SET seq = ?3 WHERE handler = ?1 AND order_key = ?2 AND seq = ?4;

-- name: order_stop
-- Pauses an order key: inserts a row before all entries of its queue, which blocks them. Its number is negative, and so
-- less than that of any message.
-- ?1 handler
-- ?2 order_key
-- ?3 now
-- ?4 error, the order key as JSON
-- Index: oncebox_poisoned_order.
INSERT INTO oncebox_poisoned
    (seq, handler, generation, token, at, attempts, crashes, reason, order_key, in_line, not_before, error)
SELECT coalesce((SELECT min(seq) FROM oncebox_poisoned WHERE seq < 0), 0) - 1, ?1, 0, 0, ?3, 0, 0, 'paused', ?2, 'blocks', 0, ?4
WHERE NOT EXISTS (SELECT 1 FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2 AND in_line = 'blocks' AND seq < 0);

-- name: order_stopped
-- Returns true if an operator paused the order key.
-- ?1 handler
-- ?2 order_key
-- Index: oncebox_poisoned_order.
SELECT EXISTS (SELECT 1 FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2 AND in_line = 'blocks' AND seq < 0);

-- name: order_unpark
-- Makes parked entries pending that no entry parks any more. They wait; the caller then releases the first.
-- ?1 handler
-- ?2 order_key
-- Index: oncebox_poisoned_order, primary key of oncebox_line.
INSERT INTO oncebox_entry (handler, due, seq, not_before, attempts, crashes, generation, token, order_key, error, line)
SELECT handler, 9223372036854775807, seq, not_before, attempts, crashes, generation, token, order_key, error,
       (SELECT number FROM oncebox_line WHERE handler = ?1 AND order_key = ?2)
FROM oncebox_poisoned p
WHERE handler = ?1 AND order_key = ?2 AND in_line = 'parked' AND NOT EXISTS (
    SELECT 1 FROM oncebox_poisoned h
    WHERE h.handler = ?1 AND h.order_key = ?2 AND h.in_line = 'parks' AND h.seq < p.seq
);

-- name: order_unpark_begin
-- Begins the order queue of the entries that `order_unpark` makes pending, unless it exists.
-- ?1 handler
-- ?2 order_key
-- Index: oncebox_poisoned_order.
INSERT INTO oncebox_line (handler, order_key, number, seq)
SELECT ?1, ?2, seq, 0 FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2 AND in_line = 'parked' ORDER BY seq LIMIT 1
ON CONFLICT (handler, order_key) DO NOTHING;

-- name: order_unpark_remove
-- Deletes the poisoned rows of the entries that `order_unpark` made pending.
-- ?1 handler
-- ?2 order_key
-- Index: oncebox_poisoned_order.
DELETE FROM oncebox_poisoned
WHERE handler = ?1 AND order_key = ?2 AND in_line = 'parked' AND NOT EXISTS (
    SELECT 1 FROM oncebox_poisoned h
    WHERE h.handler = ?1 AND h.order_key = ?2 AND h.in_line = 'parks' AND h.seq < oncebox_poisoned.seq
);

-- name: order_wait_turn
-- Makes a released entry wait that does not run yet.
-- ?1 seq
-- ?2 handler
-- Index: primary key of oncebox_entry.
UPDATE oncebox_entry SET due = 9223372036854775807, not_before = due WHERE seq = ?1 AND handler = ?2 AND +due <> 9223372036854775807;
