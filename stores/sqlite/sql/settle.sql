-- name: settle_carried
-- Reads the state that an entry keeps when it is settled.
-- ?1 claim_id
-- ?2 seq
-- ?3 handler
-- ?4 token
-- Index: primary key of oncebox_running.
SELECT order_key, error FROM oncebox_running WHERE claim_id = ?1 AND seq = ?2 AND handler = ?3 AND token = ?4;

-- name: settle_finish
-- Deletes a running row under its fence: only if exactly this claim still holds the entry.
-- ?1 claim_id
-- ?2 seq
-- ?3 handler
-- ?4 token
-- Index: primary key of oncebox_running.
DELETE FROM oncebox_running WHERE claim_id = ?1 AND seq = ?2 AND handler = ?3 AND token = ?4;

-- name: settle_handler_id
-- Reads the handler of a key, for a completion inside a handler's own transaction.
-- ?1 inbox, by name
-- ?2 handler key
-- Index: primary key of oncebox_handler_key.
SELECT k.handler FROM oncebox_handler_key k JOIN oncebox_inbox i ON i.id = k.inbox WHERE i.name = ?1 AND k.key = ?2;

-- name: settle_outcome
-- Ends a claim that still holds, and keeps the last error of its entry. `settle_finish` then deletes the running row.
-- ?1 claim_id
-- ?2 seq
-- ?3 handler
-- ?4 token
-- ?5 status
-- ?6 now
-- ?7 attempts
-- ?8 crashes
-- ?9 error, a new one, or NULL
-- Index: primary key of oncebox_running.
INSERT INTO oncebox_outcome (seq, handler, generation, status, token, at, attempts, crashes, error)
SELECT seq, handler, generation, ?5, token, ?6, ?7, ?8, coalesce(?9, error)
FROM oncebox_running WHERE claim_id = ?1 AND seq = ?2 AND handler = ?3 AND token = ?4;

-- name: settle_pending
-- Inserts a pending entry.
-- ?1 handler
-- ?2 due
-- ?3 seq
-- ?4 not_before
-- ?5 attempts
-- ?6 crashes
-- ?7 generation
-- ?8 token
-- ?9 order_key or NULL
-- ?10 error or NULL
-- ?11 line or NULL
INSERT INTO oncebox_entry (handler, due, seq, not_before, attempts, crashes, generation, token, order_key, error, line)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11);

-- name: settle_poisoned
-- Inserts a poisoned entry.
-- ?1 seq
-- ?2 handler
-- ?3 generation
-- ?4 token
-- ?5 now
-- ?6 attempts
-- ?7 crashes
-- ?8 reason
-- ?9 order_key or NULL
-- ?10 in_line or NULL
-- ?11 not_before
-- ?12 error or NULL
INSERT INTO oncebox_poisoned
    (seq, handler, generation, token, at, attempts, crashes, reason, order_key, in_line, not_before, error)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12);

-- name: settle_settled_by
-- Returns true if this claim brought the entry to its state: then the repeat of a settlement without an answer is no
-- lost lease. An outcome counts only while no later state exists.
-- ?1 seq
-- ?2 handler
-- ?3 token
-- ?4 status
-- Index: the primary keys of the tables of entries.
SELECT CASE ?4
    WHEN 'pending' THEN EXISTS (SELECT 1 FROM oncebox_entry WHERE seq = ?1 AND handler = ?2 AND token = ?3)
        -- It may have been parked at once.
        OR EXISTS (SELECT 1 FROM oncebox_poisoned WHERE seq = ?1 AND handler = ?2 AND token = ?3 AND in_line = 'parked')
    WHEN 'poisoned' THEN EXISTS (SELECT 1 FROM oncebox_poisoned WHERE seq = ?1 AND handler = ?2 AND token = ?3)
    ELSE EXISTS (SELECT 1 FROM oncebox_outcome WHERE seq = ?1 AND handler = ?2 AND token = ?3 AND status = ?4)
        AND NOT EXISTS (SELECT 1 FROM oncebox_entry WHERE seq = ?1 AND handler = ?2)
        AND NOT EXISTS (SELECT 1 FROM oncebox_poisoned WHERE seq = ?1 AND handler = ?2)
        AND NOT EXISTS (SELECT 1 FROM oncebox_running WHERE seq = ?1 AND handler = ?2)
        AND NOT EXISTS (SELECT 1 FROM oncebox_outcome WHERE seq = ?1 AND handler = ?2 AND token > ?3)
END;
