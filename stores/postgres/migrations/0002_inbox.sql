-- The tables of an inbox.
--
-- The number of a message (seq) is partition_id << 36 | count << 6 | lane. Later messages have greater numbers. The
-- partition stores the message. The lane is one of a few subtrees of every index.
--
-- Every message writes four tables: proof, message, entry and outcome. Their CHECK constraints are in `checks.sql` and
-- optional: the server reads and plans such a constraint again for every statement.

-- Counts of new messages and of claims. They only grow.
CREATE SEQUENCE oncebox_counter AS bigint;
CREATE SEQUENCE oncebox_token AS bigint;

-- One row: the state that all messages share.
CREATE TABLE oncebox_meta (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    -- Identity of the tables. A restored copy has the same.
    incarnation uuid NOT NULL DEFAULT gen_random_uuid(),
    lanes smallint NOT NULL CHECK (lanes BETWEEN 1 AND 64),
    -- The partition of new messages, the counter at its start, and the time of its first sweep.
    partition_id bigint NOT NULL CHECK (partition_id > 0),
    counted bigint NOT NULL CHECK (counted >= 0),
    started_at bigint,
    -- The server and its timeline at the last check. A promoted replica or a restored copy has another one.
    timeline text NOT NULL
);

-- Changes of the timeline that processes noticed: failovers and restored copies.
CREATE TABLE oncebox_timeline (
    -- Upper bits of all later tokens. Greater than in any earlier token.
    epoch bigint PRIMARY KEY CHECK (epoch > 0),
    noticed_at bigint NOT NULL,
    former text NOT NULL,
    timeline text NOT NULL,
    -- End of the new primary's log at its promotion, if the server still knows it.
    switched_at text,
    -- Losses that processes remembered: claims, marks, and acknowledged messages with their sources, ids, and first and
    -- last time. A process that ended before it noticed the change adds nothing.
    lost_claims bigint NOT NULL DEFAULT 0 CHECK (lost_claims >= 0),
    lost_marks bigint NOT NULL DEFAULT 0 CHECK (lost_marks >= 0),
    lost_messages bigint NOT NULL DEFAULT 0 CHECK (lost_messages >= 0),
    lost_sources text[] NOT NULL DEFAULT '{}',
    lost_ids bytea[] NOT NULL DEFAULT '{}',
    lost_from bigint,
    lost_until bigint,
    -- Older commits that processes no longer knew by name, and that may be lost, too.
    unnamed bigint NOT NULL DEFAULT 0 CHECK (unnamed >= 0),
    unnamed_since bigint
);

CREATE TABLE oncebox_inbox (
    id smallint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    name text NOT NULL UNIQUE,
    -- Greatest receive time of a swept message without entries. A message that claims to be older may be a repeat.
    watermark bigint NOT NULL,
    -- The sweep that has the turn, and the end of the turn. No other sweep runs before it.
    sweeper uuid,
    sweeper_until bigint NOT NULL DEFAULT 0,
    -- Tenants setting, as the first process registered it. Keys depend on it.
    tenants text
);

CREATE TABLE oncebox_handler (
    id smallint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    inbox smallint NOT NULL REFERENCES oncebox_inbox (id),
    -- Its newest key, which operators see, and its first key, from which idempotency keys are made.
    key text NOT NULL,
    origin text NOT NULL,
    -- The handler that this one turned out to be, though both have entries. An entry under either counts for both.
    same_as smallint REFERENCES oncebox_handler (id),
    paused boolean NOT NULL DEFAULT false,
    -- Greatest receive time of its swept messages. A message that claims to be older may have run before. Joined handlers
    -- share one value.
    watermark bigint NOT NULL DEFAULT -9223372036854775808
);

-- Current and former keys of handlers. Rows are only added, so processes cache them.
CREATE TABLE oncebox_handler_key (
    inbox smallint NOT NULL REFERENCES oncebox_inbox (id),
    key text NOT NULL,
    handler smallint NOT NULL REFERENCES oncebox_handler (id),
    PRIMARY KEY (inbox, key)
);

-- Dedupe windows, as processes registered them. The longest unexpired one wins.
CREATE TABLE oncebox_window (
    inbox smallint NOT NULL REFERENCES oncebox_inbox (id),
    -- Handler key; empty for the window of the inbox.
    handler text NOT NULL,
    span bigint NOT NULL CHECK (span >= 0),
    until bigint NOT NULL,
    PRIMARY KEY (inbox, handler, span)
);

-- Position of sweeps per window, and earlier messages that need another look.
CREATE TABLE oncebox_sweep_cursor (
    inbox smallint NOT NULL REFERENCES oncebox_inbox (id),
    span bigint NOT NULL,
    -- Digest of all windows. A position counts only for the same windows.
    digest bigint NOT NULL,
    upto bigint NOT NULL,
    behind bigint[] NOT NULL,
    PRIMARY KEY (inbox, span)
);

-- The dedupe ledger: one exact unique index over all remembered keys. Sweeps delete its rows in order and in pages.
CREATE TABLE oncebox_proof (
    seq bigint NOT NULL,
    received_at bigint NOT NULL,
    -- Depends on the digest alone, so that a key has one place whatever else the message says.
    lane smallint NOT NULL,
    inbox smallint NOT NULL,
    digest bytea NOT NULL,
    fingerprint bytea NOT NULL,
    -- Ids of the handlers that it has entries for, two bytes each.
    handlers bytea NOT NULL,
    tenant text,
    PRIMARY KEY (lane, digest)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1);
CREATE INDEX "oncebox_proof_seq" ON oncebox_proof (seq);
-- For queries of one tenant. Messages without a tenant are not in it and cost nothing.
CREATE INDEX "oncebox_proof_tenant" ON oncebox_proof (tenant, inbox, seq) WHERE tenant IS NOT NULL;

-- Accepted messages; never updated. Retention drops whole partitions.
CREATE TABLE oncebox_message (
    seq bigint NOT NULL,
    received_at bigint NOT NULL,
    time bigint,
    lane smallint NOT NULL,
    inbox smallint NOT NULL,
    digest bytea NOT NULL,
    source text NOT NULL,
    id bytea NOT NULL,
    type text NOT NULL,
    ordering_key bytea,
    headers bytea NOT NULL,
    payload bytea NOT NULL,
    tenant text,
    PRIMARY KEY (lane, seq)
) PARTITION BY RANGE (seq);
-- Messages that outlive their partition, because entries of them are unfinished or poisoned.
CREATE TABLE oncebox_message_kept PARTITION OF oncebox_message DEFAULT;

-- The hot table: entries that are due and were never leased, and leased entries. A lease is written in place, where the
-- page has room for it. A settlement deletes the row. Only the first entry of an order key is in this table.
CREATE TABLE oncebox_entry (
    seq bigint NOT NULL,
    -- Due time: claims take entries in this order.
    due bigint NOT NULL,
    lane smallint NOT NULL,
    handler smallint NOT NULL,
    -- The lease; NULL before a claim.
    token bigint,
    claimed_at bigint,
    lease_until bigint,
    claim_id uuid,
    -- State of an entry that waited before; NULL stands for 0.
    attempts integer,
    crashes integer,
    generation integer,
    order_key bytea,
    error text,
    -- True if the run began as the only one of its worker; NULL for entries that crashed no worker.
    alone boolean,
    PRIMARY KEY (lane, handler, seq)
) WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 1000000);
CREATE INDEX "oncebox_entry_order" ON oncebox_entry (lane, handler, order_key) WHERE order_key IS NOT NULL;

-- One row per claim that found entries: the ranges of their numbers. Finds them again after a lost answer, and when their
-- leases expire.
CREATE TABLE oncebox_claim (
    claim_id uuid PRIMARY KEY,
    -- No lease of the claim expires before this time.
    until bigint NOT NULL,
    -- Ranges of numbers, each within a lane and handler.
    lanes smallint[] NOT NULL,
    handlers smallint[] NOT NULL,
    firsts bigint[] NOT NULL,
    lasts bigint[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Scheduled entries: retries, delays, and entries that wait for an earlier one with the same order key.
CREATE TABLE oncebox_scheduled (
    seq bigint NOT NULL,
    -- The greatest integer for an entry that waits for an earlier one with the same order key.
    due bigint NOT NULL,
    -- With an order key: the requested due time.
    not_before bigint NOT NULL,
    -- The claim that settled it last.
    token bigint NOT NULL DEFAULT 0,
    attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    -- Suspicion of crashing workers. 1 to 3: a worker died while it held this entry and others. Above 3: the count grows
    -- with each worker that died while it ran this entry alone. The same in all tables.
    crashes integer NOT NULL DEFAULT 0 CHECK (crashes >= 0),
    generation integer NOT NULL DEFAULT 0 CHECK (generation >= 0),
    lane smallint NOT NULL,
    handler smallint NOT NULL,
    order_key bytea CHECK (octet_length(order_key) = 16),
    error text,
    PRIMARY KEY (lane, seq, handler),
    CHECK (lane = seq & 63)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 1000000);
CREATE INDEX "oncebox_scheduled_due" ON oncebox_scheduled (lane, handler, due, seq) WHERE crashes = 0 AND due <> 9223372036854775807;
CREATE INDEX "oncebox_scheduled_suspect" ON oncebox_scheduled (lane, handler, due, seq) WHERE crashes > 0;
CREATE INDEX "oncebox_scheduled_order" ON oncebox_scheduled (lane, handler, order_key, seq) WHERE order_key IS NOT NULL;
-- At most one entry of an order key has a due time. This index finds it without reading those that wait for it.
CREATE INDEX "oncebox_scheduled_head" ON oncebox_scheduled (lane, handler, order_key) WHERE order_key IS NOT NULL AND due <> 9223372036854775807;

-- Finished entries; append-only, partitioned like the messages.
CREATE TABLE oncebox_outcome (
    seq bigint NOT NULL,
    token bigint NOT NULL,
    at bigint NOT NULL,
    attempts integer NOT NULL,
    crashes integer NOT NULL,
    generation integer NOT NULL,
    lane smallint NOT NULL,
    handler smallint NOT NULL,
    -- Completed or discarded.
    status text NOT NULL,
    error text,
    PRIMARY KEY (lane, seq, handler, generation)
) PARTITION BY RANGE (seq);
CREATE TABLE oncebox_outcome_kept PARTITION OF oncebox_outcome DEFAULT;

-- Entries that failed for good and wait for an operator.
CREATE TABLE oncebox_poisoned (
    seq bigint NOT NULL,
    token bigint NOT NULL,
    at bigint NOT NULL,
    attempts integer NOT NULL,
    crashes integer NOT NULL,
    generation integer NOT NULL,
    lane smallint NOT NULL,
    handler smallint NOT NULL,
    reason text NOT NULL,
    order_key bytea,
    -- With an order key: its effect on later entries.
    in_line text CHECK (in_line IN ('blocks', 'parks', 'skipped', 'parked')),
    -- For a parked entry: the requested due time.
    not_before bigint,
    error text,
    PRIMARY KEY (lane, seq, handler),
    CHECK (lane = seq & 63),
    CHECK ((order_key IS NULL) = (in_line IS NULL))
);
CREATE INDEX "oncebox_poisoned_order" ON oncebox_poisoned (lane, handler, order_key, in_line, seq) WHERE order_key IS NOT NULL;
-- Finds blocked order keys. Mostly there is none, and no order key needs a look.
CREATE INDEX "oncebox_poisoned_line" ON oncebox_poisoned (lane, handler, order_key, seq) WHERE in_line IN ('blocks', 'parks');

-- Failed attempts. Swept with the key of the message.
CREATE TABLE oncebox_attempt (
    seq bigint NOT NULL,
    token bigint NOT NULL,
    at bigint NOT NULL,
    attempts integer NOT NULL,
    crashes integer NOT NULL,
    generation integer NOT NULL,
    lane smallint NOT NULL,
    handler smallint NOT NULL,
    claim_id uuid NOT NULL,
    event text NOT NULL,
    error text,
    PRIMARY KEY (lane, seq, handler, token),
    CHECK (lane = seq & 63)
);

-- Counts of duplicates per message, written in batches. Swept with the key of the message.
CREATE TABLE oncebox_duplicate (
    seq bigint NOT NULL,
    count bigint NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    lane smallint NOT NULL,
    -- Number of duplicates with another payload.
    varied bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (lane, seq),
    CHECK (lane = seq & 63)
);

-- Messages that arrived under a known key with another payload, or too late to know whether they ran before.
CREATE TABLE oncebox_quarantine (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    received_at bigint NOT NULL,
    time bigint,
    inbox smallint NOT NULL,
    reason text NOT NULL CHECK (reason IN ('conflict', 'stale')),
    digest bytea NOT NULL,
    fingerprint bytea NOT NULL,
    source text NOT NULL,
    message_id bytea NOT NULL,
    type text NOT NULL,
    ordering_key bytea,
    headers bytea NOT NULL,
    payload bytea NOT NULL,
    tenant text,
    UNIQUE (digest, fingerprint)
);

-- Audit log: operations, their actors, reasons and results. Written in the operation's transaction. Deleted by age.
CREATE TABLE oncebox_operation (
    -- Later ones have greater numbers.
    number bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    id uuid NOT NULL UNIQUE,
    -- The bulk operation that it is part of.
    parent uuid,
    at bigint NOT NULL,
    inbox smallint NOT NULL,
    actor text NOT NULL,
    -- Name of the request's token. The actor cannot choose it.
    token text,
    reason text NOT NULL,
    verb text NOT NULL,
    digest bytea,
    handler text,
    -- Request and answer, as JSON. A repeat of the request gets the same answer.
    body text NOT NULL,
    answer text NOT NULL,
    -- Progress of a long operation, and the number of times it was stored.
    noted integer NOT NULL DEFAULT 0,
    progress text
);
CREATE INDEX "oncebox_operation_digest" ON oncebox_operation (digest, number) WHERE digest IS NOT NULL;
CREATE INDEX "oncebox_operation_parent" ON oncebox_operation (parent, number) WHERE parent IS NOT NULL;
CREATE INDEX "oncebox_operation_age" ON oncebox_operation (inbox, at);

-- Marks of once and inline handlers, written in the caller's own transaction. Swept like the proof.
CREATE TABLE oncebox_mark (
    at bigint NOT NULL,
    lane smallint NOT NULL CHECK (lane BETWEEN 0 AND 63),
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    inbox text NOT NULL,
    handler text NOT NULL,
    -- Identifies the message among others under its key; NULL for `once` of an id alone.
    fingerprint bytea CHECK (octet_length(fingerprint) = 16),
    -- Result that a duplicate gets.
    result bytea,
    PRIMARY KEY (lane, digest, handler)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
-- Each handler has its own window.
CREATE INDEX "oncebox_mark_age" ON oncebox_mark (inbox, handler, at);

-- Partitions, without the two default ones that keep rows beyond their partition.
CREATE TABLE oncebox_partition (
    id bigint PRIMARY KEY CHECK (id > 0),
    -- Start of the next partition. From then on this one gets no rows.
    ended_at bigint,
    -- True until its messages are dropped. The outcomes are dropped with this row.
    payload boolean NOT NULL DEFAULT true
);
