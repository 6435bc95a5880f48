-- The tables of an inbox. All names start with oncebox_, so that they can share a file with business tables.

-- One row: the counters of the store. seq and token only grow. They are never read from the tables, whose rows are deleted.
CREATE TABLE oncebox_counter (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    seq INTEGER NOT NULL,
    token INTEGER NOT NULL,
    -- The log-structured proof: all messages up to `merged` are in oncebox_proof. A pass merges up to `pass_upto`, one
        -- slice of the digests after the other; `pass_slice` is the next one. `proofs` is their approximate number.
    merged INTEGER NOT NULL,
    pass_upto INTEGER NOT NULL,
    pass_slice INTEGER NOT NULL,
    proofs INTEGER NOT NULL,
    -- Greatest number ever swept: proofs up to it may belong to deleted messages.
    swept INTEGER NOT NULL
) STRICT;
INSERT INTO oncebox_counter VALUES (1, 0, 0, 0, 0, 0, 0, 0);

CREATE TABLE oncebox_inbox (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    -- Greatest receive time of a swept message without entries. A message that claims to be older may be a repeat.
    watermark INTEGER NOT NULL,
    -- The sweep that has the turn, and the end of the turn. No other sweep runs before it.
    sweeper BLOB CHECK (length(sweeper) = 16),
    sweeper_until INTEGER NOT NULL DEFAULT 0,
    -- Tenants setting, as the first process registered it. Keys depend on it.
    tenants TEXT
) STRICT;

CREATE TABLE oncebox_handler (
    id INTEGER PRIMARY KEY,
    inbox INTEGER NOT NULL REFERENCES oncebox_inbox (id),
    -- Its newest key, which operators see, and its first key, from which idempotency keys are made.
    key TEXT NOT NULL,
    origin TEXT NOT NULL,
    -- The handler that this one turned out to be, though both have entries. An entry under either counts for both.
    same_as INTEGER REFERENCES oncebox_handler (id),
    paused INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
    -- Greatest receive time of its swept messages. A message that claims to be older may have run before.
    watermark INTEGER NOT NULL DEFAULT -9223372036854775808
) STRICT;

-- Current and former keys of handlers. Rows are only added.
CREATE TABLE oncebox_handler_key (
    inbox INTEGER NOT NULL REFERENCES oncebox_inbox (id),
    key TEXT NOT NULL,
    handler INTEGER NOT NULL REFERENCES oncebox_handler (id),
    PRIMARY KEY (inbox, key)
) STRICT, WITHOUT ROWID;

-- Dedupe windows, as processes registered them. The longest unexpired one wins.
CREATE TABLE oncebox_window (
    inbox INTEGER NOT NULL REFERENCES oncebox_inbox (id),
    -- Handler key; empty for the window of the inbox.
    handler TEXT NOT NULL,
    span INTEGER NOT NULL CHECK (span >= 0),
    until INTEGER NOT NULL,
    PRIMARY KEY (inbox, handler, span)
) STRICT, WITHOUT ROWID;

-- Position of sweeps per window, and earlier messages that need another look: eight bytes a message.
CREATE TABLE oncebox_sweep_cursor (
    inbox INTEGER NOT NULL REFERENCES oncebox_inbox (id),
    span INTEGER NOT NULL,
    -- Digest of all windows. A position counts only for the same windows.
    digest INTEGER NOT NULL,
    upto INTEGER NOT NULL,
    behind BLOB NOT NULL CHECK (length(behind) % 8 = 0),
    PRIMARY KEY (inbox, span)
) STRICT, WITHOUT ROWID;

-- Accepted messages; append-only. The digests of recent rows are the part of the proof that is not merged yet.
CREATE TABLE oncebox_message (
    seq INTEGER PRIMARY KEY,
    inbox INTEGER NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 16),
    -- Ids of the handlers that it has entries for, four bytes each.
    handlers BLOB NOT NULL CHECK (length(handlers) % 4 = 0),
    received_at INTEGER NOT NULL,
    time INTEGER,
    tenant TEXT,
    source TEXT NOT NULL,
    id BLOB NOT NULL,
    type TEXT NOT NULL,
    ordering_key BLOB,
    headers BLOB NOT NULL,
    payload BLOB NOT NULL
) STRICT;
-- For queries of one tenant. Messages without a tenant are not in it and cost nothing.
CREATE INDEX oncebox_message_tenant ON oncebox_message (tenant, inbox) WHERE tenant IS NOT NULL;

-- Digest to number, for merged messages. A row without a message counts as absent.
CREATE TABLE oncebox_proof (
    digest BLOB PRIMARY KEY,
    seq INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Pending entries only. A claim moves the row to oncebox_running.
CREATE TABLE oncebox_entry (
    seq INTEGER NOT NULL,
    handler INTEGER NOT NULL,
    -- The greatest integer for an entry that waits for an earlier one with the same order key.
    due INTEGER NOT NULL,
    -- For an entry that waits for an earlier one: the requested due time.
    not_before INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    -- Suspicion of crashing workers. 1 to 3: a worker died while it held this entry and others. Above 3: the count grows
        -- with each worker that died while it ran this entry alone. The same in all tables.
    crashes INTEGER NOT NULL DEFAULT 0 CHECK (crashes >= 0),
    generation INTEGER NOT NULL DEFAULT 0 CHECK (generation >= 0),
    -- The claim that settled it last.
    token INTEGER NOT NULL DEFAULT 0,
    order_key BLOB,
    error TEXT,
    -- With an order key: the number of its order queue.
    line INTEGER,
    PRIMARY KEY (seq, handler)
) STRICT, WITHOUT ROWID;
-- Each entry is in one of these two indexes: in the order of claims, or among those that wait in its order queue. The row
-- stays in place when the entry is released.
CREATE INDEX oncebox_entry_due ON oncebox_entry (handler, due, seq) WHERE due <> 9223372036854775807;
CREATE INDEX oncebox_entry_order ON oncebox_entry (handler, line, seq) WHERE due = 9223372036854775807;
CREATE INDEX oncebox_entry_suspect ON oncebox_entry (handler, due) WHERE crashes > 0;

-- Store instances that claimed entries. Each locks the file `<database>-owner-<name>` until it ends.
CREATE TABLE oncebox_owner (
    -- Never reused: a row of a deleted owner must not seem to be another's.
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    -- Identity of one boot of one machine: a lock proves nothing about another machine.
    boot TEXT NOT NULL
) STRICT;

-- Leased entries; never more rows than the workers hold.
CREATE TABLE oncebox_running (
    claim_id BLOB NOT NULL CHECK (length(claim_id) = 16),
    seq INTEGER NOT NULL,
    handler INTEGER NOT NULL,
    token INTEGER NOT NULL CHECK (token > 0),
    -- Due time: claims return entries in this order.
    due INTEGER NOT NULL,
    claimed_at INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    crashes INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    order_key BLOB,
    error TEXT,
    -- 1 if the run began as the only one of its worker. Only a claim of one suspect sets it.
    alone INTEGER NOT NULL DEFAULT 0 CHECK (alone IN (0, 1)),
    -- The store instance that claimed it; NULL if no lock proves that it lives.
    owner INTEGER,
    PRIMARY KEY (claim_id, seq, handler)
) STRICT, WITHOUT ROWID;

-- Order queues with a pending or running entry. A claim changes nothing here.
CREATE TABLE oncebox_line (
    handler INTEGER NOT NULL,
    order_key BLOB NOT NULL,
    -- Number of its first entry. The index of waiting entries uses it instead of the order key: it is shorter, and keeps
        -- entries together that arrived together.
    number INTEGER NOT NULL,
    -- The entry that may run: it is pending with a due time, or running. 0 while the queue is blocked.
    seq INTEGER NOT NULL,
    PRIMARY KEY (handler, order_key)
) STRICT, WITHOUT ROWID;

-- Finished entries; append-only.
CREATE TABLE oncebox_outcome (
    seq INTEGER NOT NULL,
    handler INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('completed', 'discarded')),
    token INTEGER NOT NULL,
    at INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    crashes INTEGER NOT NULL,
    error TEXT,
    PRIMARY KEY (seq, handler, generation)
) STRICT, WITHOUT ROWID;

-- Entries that failed for good and wait for an operator. Their messages are never swept.
CREATE TABLE oncebox_poisoned (
    seq INTEGER NOT NULL,
    handler INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    token INTEGER NOT NULL,
    at INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    crashes INTEGER NOT NULL,
    reason TEXT NOT NULL,
    order_key BLOB,
    -- With an order key: its effect on later entries.
    in_line TEXT CHECK (in_line IN ('blocks', 'parks', 'skipped', 'parked')),
    -- For a parked entry: the requested due time.
    not_before INTEGER NOT NULL DEFAULT 0,
    error TEXT,
    PRIMARY KEY (seq, handler),
    CHECK ((order_key IS NULL) = (in_line IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX oncebox_poisoned_order ON oncebox_poisoned (handler, order_key, in_line, seq) WHERE order_key IS NOT NULL;
-- Entries that block others: counts blocked order keys without reading the parked entries.
CREATE INDEX oncebox_poisoned_head ON oncebox_poisoned (handler, order_key, seq, in_line) WHERE in_line IN ('blocks', 'parks');

-- Failed attempts. Swept with the message.
CREATE TABLE oncebox_attempt (
    seq INTEGER NOT NULL,
    handler INTEGER NOT NULL,
    token INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    at INTEGER NOT NULL,
    event TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    crashes INTEGER NOT NULL,
    claim_id BLOB NOT NULL CHECK (length(claim_id) = 16),
    error TEXT,
    PRIMARY KEY (seq, handler, token)
) STRICT, WITHOUT ROWID;

-- Counts of duplicates per message, written in batches. Swept with the message.
CREATE TABLE oncebox_duplicate (
    seq INTEGER PRIMARY KEY,
    count INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    -- Number of duplicates with another payload.
    varied INTEGER NOT NULL
) STRICT;

-- Messages that arrived under a known key with another payload, or too late to know whether they ran before.
CREATE TABLE oncebox_quarantine (
    id INTEGER PRIMARY KEY,
    inbox INTEGER NOT NULL,
    digest BLOB NOT NULL,
    fingerprint BLOB NOT NULL,
    reason TEXT NOT NULL CHECK (reason IN ('conflict', 'stale')),
    received_at INTEGER NOT NULL,
    time INTEGER,
    tenant TEXT,
    source TEXT NOT NULL,
    message_id BLOB NOT NULL,
    type TEXT NOT NULL,
    ordering_key BLOB,
    headers BLOB NOT NULL,
    payload BLOB NOT NULL,
    UNIQUE (digest, fingerprint)
) STRICT;

-- Marks of once and inline handlers. Written through the caller's own connection.
CREATE TABLE oncebox_mark (
    id INTEGER PRIMARY KEY,
    inbox TEXT NOT NULL,
    digest BLOB NOT NULL,
    handler TEXT NOT NULL,
    at INTEGER NOT NULL,
    -- Identifies the message among others under its key; NULL for `once` of an id alone.
    fingerprint BLOB CHECK (length(fingerprint) = 16),
    -- Result that a duplicate gets. Last, so that reads of other columns skip it.
    result BLOB,
    UNIQUE (digest, handler)
) STRICT;
-- For the sweep, which would otherwise read every mark to find the few old ones: each handler has its own window. Grows at
-- one end per handler, so it is cheap.
CREATE INDEX oncebox_mark_age ON oncebox_mark (inbox, handler, at);

-- Audit log: operations, their actors, reasons and results. Written in the operation's transaction. Deleted by age.
CREATE TABLE oncebox_operation (
    -- Later ones have greater numbers.
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    -- The bulk operation that it is part of.
    parent BLOB CHECK (length(parent) = 16),
    inbox INTEGER NOT NULL,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    -- Name of the request's token. The actor cannot choose it.
    token TEXT,
    reason TEXT NOT NULL,
    verb TEXT NOT NULL,
    digest BLOB,
    handler TEXT,
    -- Request and answer, as JSON. A repeat of the request gets the same answer.
    body TEXT NOT NULL,
    answer TEXT NOT NULL,
    -- Progress of a long operation, and the number of times it was stored.
    noted INTEGER NOT NULL DEFAULT 0,
    progress TEXT
) STRICT;
CREATE INDEX oncebox_operation_digest ON oncebox_operation (digest) WHERE digest IS NOT NULL;
CREATE INDEX oncebox_operation_parent ON oncebox_operation (parent) WHERE parent IS NOT NULL;
CREATE INDEX oncebox_operation_age ON oncebox_operation (inbox, at);
