-- The tables of an inbox. All names start with oncebox_, so that they can live beside business tables.

-- One row: the counters of the store. seq and token only grow, and are never taken from the tables, because rows leave.
CREATE TABLE oncebox_counter (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    seq INTEGER NOT NULL,
    token INTEGER NOT NULL,
    -- The log-structured proof: everything up to `merged` is in oncebox_proof. A pass merges up to `pass_upto`, one
    -- slice of the digests after the other; `pass_slice` is the next one. `proofs` is about how many there are.
    merged INTEGER NOT NULL,
    pass_upto INTEGER NOT NULL,
    pass_slice INTEGER NOT NULL,
    proofs INTEGER NOT NULL,
    -- The greatest sequence ever swept: proofs up to it may belong to messages that are gone.
    swept INTEGER NOT NULL
) STRICT;
INSERT INTO oncebox_counter VALUES (1, 0, 0, 0, 0, 0, 0, 0);

CREATE TABLE oncebox_inbox (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    -- The greatest receive time of a message without entries that was swept: one that says it is older may have been here.
    watermark INTEGER NOT NULL,
    -- Who sweeps it, from page to page; nobody else does until this time.
    sweeper BLOB CHECK (length(sweeper) = 16),
    sweeper_until INTEGER NOT NULL DEFAULT 0,
    -- How its processes treat tenants, as the first of them registered it. Keys depend on it.
    tenants TEXT
) STRICT;

CREATE TABLE oncebox_handler (
    id INTEGER PRIMARY KEY,
    inbox INTEGER NOT NULL REFERENCES oncebox_inbox (id),
    -- The newest of its keys, which operators see, and the first one, which idempotency keys are made of.
    key TEXT NOT NULL,
    origin TEXT NOT NULL,
    -- The handler that this one turned out to be, though both have entries: one under either of them counts for both.
    same_as INTEGER REFERENCES oncebox_handler (id),
    paused INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
    -- The greatest receive time ever swept of its messages: one that says it is older may have run before.
    watermark INTEGER NOT NULL DEFAULT -9223372036854775808
) STRICT;

-- The keys of handlers, current and former ones. A row is only ever added.
CREATE TABLE oncebox_handler_key (
    inbox INTEGER NOT NULL REFERENCES oncebox_inbox (id),
    key TEXT NOT NULL,
    handler INTEGER NOT NULL REFERENCES oncebox_handler (id),
    PRIMARY KEY (inbox, key)
) STRICT, WITHOUT ROWID;

-- How long handlers remember, as processes have said it. The longest that is not over counts.
CREATE TABLE oncebox_window (
    inbox INTEGER NOT NULL REFERENCES oncebox_inbox (id),
    -- Empty for the window of the inbox.
    handler TEXT NOT NULL,
    span INTEGER NOT NULL CHECK (span >= 0),
    until INTEGER NOT NULL,
    PRIMARY KEY (inbox, handler, span)
) STRICT, WITHOUT ROWID;

-- How far sweeps have come with each window, and what has to be looked at again behind that: eight bytes a message.
CREATE TABLE oncebox_sweep_cursor (
    inbox INTEGER NOT NULL REFERENCES oncebox_inbox (id),
    span INTEGER NOT NULL,
    -- Tells the windows under which it came so far.
    digest INTEGER NOT NULL,
    upto INTEGER NOT NULL,
    behind BLOB NOT NULL CHECK (length(behind) % 8 = 0),
    PRIMARY KEY (inbox, span)
) STRICT, WITHOUT ROWID;

-- Append-only: what was accepted. The digests of recent rows are the part of the proof that is not merged yet.
CREATE TABLE oncebox_message (
    seq INTEGER PRIMARY KEY,
    inbox INTEGER NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 16),
    -- The handlers it has entries for: their ids, four bytes each.
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
-- For an operator of one tenant. Messages without one are not in it, and cost nothing.
CREATE INDEX oncebox_message_tenant ON oncebox_message (tenant, inbox) WHERE tenant IS NOT NULL;

-- Digest to sequence, for what was merged. A row whose message is gone counts as absent.
CREATE TABLE oncebox_proof (
    digest BLOB PRIMARY KEY,
    seq INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Pending work only. A claimed row moves to oncebox_running.
CREATE TABLE oncebox_entry (
    seq INTEGER NOT NULL,
    handler INTEGER NOT NULL,
    -- The greatest integer for an entry that waits behind another one with the same order key.
    due INTEGER NOT NULL,
    -- For one that waits behind another: the due time it asked for.
    not_before INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    -- How far it is suspected of taking its worker down: 1 to 3 a worker died while it held this entry and others; above 3 by how
    -- many workers died while they ran it alone. The same in all tables.
    crashes INTEGER NOT NULL DEFAULT 0 CHECK (crashes >= 0),
    generation INTEGER NOT NULL DEFAULT 0 CHECK (generation >= 0),
    -- The claim that settled it last.
    token INTEGER NOT NULL DEFAULT 0,
    order_key BLOB,
    error TEXT,
    -- With an order key: the number of its line.
    line INTEGER,
    PRIMARY KEY (seq, handler)
) STRICT, WITHOUT ROWID;
-- Each entry is in one of these two: in the order in which it is claimed, or among those that wait in its line. Apart from the
-- rows, so that one that is let go stays where it is.
CREATE INDEX oncebox_entry_due ON oncebox_entry (handler, due, seq) WHERE due <> 9223372036854775807;
CREATE INDEX oncebox_entry_order ON oncebox_entry (handler, line, seq) WHERE due = 9223372036854775807;
CREATE INDEX oncebox_entry_suspect ON oncebox_entry (handler, due) WHERE crashes > 0;

-- Store instances that have claimed something: each holds a lock on the file `<database>-owner-<name>` for as long as it lives.
CREATE TABLE oncebox_owner (
    -- Never used again: a row of a forgotten owner must not seem to be another's.
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    -- Tells one boot of one machine from all others: a lock says nothing about another machine.
    boot TEXT NOT NULL
) STRICT;

-- Leased work; never more rows than the workers have in hand.
CREATE TABLE oncebox_running (
    claim_id BLOB NOT NULL CHECK (length(claim_id) = 16),
    seq INTEGER NOT NULL,
    handler INTEGER NOT NULL,
    token INTEGER NOT NULL CHECK (token > 0),
    -- When it was due: claims are handed out in this order.
    due INTEGER NOT NULL,
    claimed_at INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    crashes INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    order_key BLOB,
    error TEXT,
    -- Whether the run began as the only one of its worker. Only a claim of one suspect sets it.
    alone INTEGER NOT NULL DEFAULT 0 CHECK (alone IN (0, 1)),
    -- The store instance that claimed it; nothing if no lock says whether that lives.
    owner INTEGER,
    PRIMARY KEY (claim_id, seq, handler)
) STRICT, WITHOUT ROWID;

-- Lines that have an entry that is pending or runs. A claim changes nothing here.
CREATE TABLE oncebox_line (
    handler INTEGER NOT NULL,
    order_key BLOB NOT NULL,
    -- That of the entry it began with. Those who wait lie by it and not by their key: shorter, and beside those who came with
    -- them and will go with them.
    number INTEGER NOT NULL,
    -- The one that may go: it is pending with a due time, or it runs. 0 while the line is held back.
    seq INTEGER NOT NULL,
    PRIMARY KEY (handler, order_key)
) STRICT, WITHOUT ROWID;

-- Append-only: what was finished.
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

-- What failed for good and waits for a person. Its message is never swept.
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
    -- With an order key: what it is to those behind it.
    in_line TEXT CHECK (in_line IN ('blocks', 'parks', 'skipped', 'parked')),
    -- For one that is parked: the due time it asked for.
    not_before INTEGER NOT NULL DEFAULT 0,
    error TEXT,
    PRIMARY KEY (seq, handler),
    CHECK ((order_key IS NULL) = (in_line IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX oncebox_poisoned_order ON oncebox_poisoned (handler, order_key, in_line, seq) WHERE order_key IS NOT NULL;
-- Those that hold others back: the lines they are of are counted without reading what is parked behind them.
CREATE INDEX oncebox_poisoned_head ON oncebox_poisoned (handler, order_key, seq, in_line) WHERE in_line IN ('blocks', 'parks');

-- Attempts that did not succeed. Leaves with its message.
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

-- How many duplicates of a message were delivered. Written now and then, not for each. Leaves with its message.
CREATE TABLE oncebox_duplicate (
    seq INTEGER PRIMARY KEY,
    count INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    -- How many of them had another payload.
    varied INTEGER NOT NULL
) STRICT;

-- Messages that came under a known key with another payload, or too late to know whether they ran before.
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
    -- Tells the message from another one under its key; nothing for `once` of an id alone.
    fingerprint BLOB CHECK (length(fingerprint) = 16),
    -- What a duplicate is answered with. Last, so that nobody reads it on the way to something else.
    result BLOB,
    UNIQUE (digest, handler)
) STRICT;
-- For the sweep, which would else read every mark to find the few old ones: each handler has its own window. Grows at
-- one end for each handler, so it is cheap.
CREATE INDEX oncebox_mark_age ON oncebox_mark (inbox, handler, at);

-- What operators did, who asked for it and why, and what came of it. Written in the transaction that did it. Leaves by age.
CREATE TABLE oncebox_operation (
    -- Later ones have greater numbers.
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    -- The operation on many that it was a part of.
    parent BLOB CHECK (length(parent) = 16),
    inbox INTEGER NOT NULL,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    -- The name of the token that the request came with. The actor cannot choose it.
    token TEXT,
    reason TEXT NOT NULL,
    verb TEXT NOT NULL,
    digest BLOB,
    handler TEXT,
    -- What was asked for and what was answered, as JSON: the same again gets the same answer.
    body TEXT NOT NULL,
    answer TEXT NOT NULL,
    -- How far a long one has come, and how often that was noted.
    noted INTEGER NOT NULL DEFAULT 0,
    progress TEXT
) STRICT;
CREATE INDEX oncebox_operation_digest ON oncebox_operation (digest) WHERE digest IS NOT NULL;
CREATE INDEX oncebox_operation_parent ON oncebox_operation (parent) WHERE parent IS NOT NULL;
CREATE INDEX oncebox_operation_age ON oncebox_operation (inbox, at);
