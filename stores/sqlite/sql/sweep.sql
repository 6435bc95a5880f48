-- name: sweep_candidate
-- Reads a message that needs another look.
-- ?1 seq
-- Index: primary key of oncebox_message.
SELECT seq, inbox, received_at, handlers FROM oncebox_message WHERE seq = ?1;

-- name: sweep_candidates
-- Reads a page of messages, oldest first. Receive times grow with the number, unless the clock is set back.
-- ?1 seq to continue after
-- ?2 limit
-- Index: primary key of oncebox_message.
SELECT seq, inbox, received_at, handlers FROM oncebox_message WHERE seq > ?1 ORDER BY seq LIMIT ?2;

-- name: sweep_cursor
-- Reads the sweep cursor of a window.
-- ?1 inbox
-- ?2 span in ms
-- ?3 digest of all windows
-- Index: primary key of oncebox_sweep_cursor.
SELECT upto, behind FROM oncebox_sweep_cursor WHERE inbox = ?1 AND span = ?2 AND digest = ?3;

-- name: sweep_delete_cursors
-- Deletes cursors of former windows.
-- ?1 inbox
-- ?2 digest of all windows
-- Index: primary key of oncebox_sweep_cursor.
DELETE FROM oncebox_sweep_cursor WHERE inbox = ?1 AND digest <> ?2;

-- name: sweep_ends
-- Reads the end of each entry of a message.
-- ?1 seq
-- Index: primary key of oncebox_outcome.
SELECT handler, at FROM oncebox_outcome WHERE seq = ?1;

-- name: sweep_mark_handler
-- Finds the next handler that has marks.
-- ?1 inbox
-- ?2 handler key to continue after
-- Index: oncebox_mark_age, one step.
SELECT min(handler) FROM oncebox_mark WHERE inbox = ?1 AND handler > ?2;

-- name: sweep_marks
-- Deletes marks of a handler up to a time, oldest first.
-- ?1 inbox
-- ?2 handler key
-- ?3 at, last one to delete
-- ?4 limit
-- Index: oncebox_mark_age.
DELETE FROM oncebox_mark
WHERE id IN (SELECT id FROM oncebox_mark WHERE inbox = ?1 AND handler = ?2 AND at <= ?3 ORDER BY at LIMIT ?4);

-- name: sweep_message
-- Deletes a message.
-- ?1 seq
-- Index: primary key of oncebox_message.
DELETE FROM oncebox_message WHERE seq = ?1;

-- name: sweep_outcomes
-- Deletes the outcomes of a message.
-- ?1 seq
-- Index: primary key of oncebox_outcome.
DELETE FROM oncebox_outcome WHERE seq = ?1;

-- name: sweep_running
-- Lists the messages with a running entry.
-- Index: none: the table is small.
SELECT seq FROM oncebox_running;

-- name: sweep_set_cursor
-- Stores the sweep cursor of a window.
-- ?1 inbox
-- ?2 span in ms
-- ?3 digest of all windows
-- ?4 upto, last number
-- ?5 behind, numbers that need another look
-- Index: primary key of oncebox_sweep_cursor.
INSERT INTO oncebox_sweep_cursor (inbox, span, digest, upto, behind) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (inbox, span) DO UPDATE SET digest = excluded.digest, upto = excluded.upto, behind = excluded.behind;

-- name: sweep_set_sweeper
-- Gives a sweep the turn, or ends it.
-- ?1 inbox
-- ?2 sweep or NULL
-- ?3 until
-- Index: primary key of oncebox_inbox.
UPDATE oncebox_inbox SET sweeper = ?2, sweeper_until = ?3 WHERE id = ?1;

-- name: sweep_sweeper
-- Reads the sweep that has the turn.
-- ?1 inbox
-- Index: primary key of oncebox_inbox.
SELECT sweeper, sweeper_until FROM oncebox_inbox WHERE id = ?1;

-- name: sweep_unfinished
-- Returns true if a message has a pending or poisoned entry, or an outcome inside its window.
-- ?1 seq
-- ?2 at, end of the window
-- Index: primary keys of oncebox_entry, oncebox_poisoned and oncebox_outcome.
SELECT EXISTS (SELECT 1 FROM oncebox_entry WHERE seq = ?1)
    OR EXISTS (SELECT 1 FROM oncebox_poisoned WHERE seq = ?1)
    OR EXISTS (SELECT 1 FROM oncebox_outcome WHERE seq = ?1 AND at > ?2);
