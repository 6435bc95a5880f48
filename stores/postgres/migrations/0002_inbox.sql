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

-- Creates one partition of each partitioned table. Runs with the rights of the role that migrated, so that the service
-- needs none.
CREATE FUNCTION oncebox_make_partition(partition_id bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    parent text;
BEGIN
    IF EXISTS (SELECT 1 FROM oncebox_partition WHERE id = partition_id) THEN RETURN; END IF;
    FOREACH parent IN ARRAY ARRAY['message', 'outcome'] LOOP
        -- Attached in a second step: creating it as a partition would block all readers.
        -- Inserts never trigger autovacuum, a good part of the work of a busy server: the partition is dropped whole.
        EXECUTE format('CREATE TABLE oncebox_%s_%s (LIKE oncebox_%s INCLUDING ALL) WITH (autovacuum_vacuum_insert_threshold = -1)',
            parent, partition_id, parent);
        EXECUTE format('ALTER TABLE oncebox_%s ATTACH PARTITION oncebox_%s_%s FOR VALUES FROM (%s) TO (%s)',
            parent, parent, partition_id, partition_id << 36, (partition_id + 1) << 36);
    END LOOP;
    INSERT INTO oncebox_partition (id) VALUES (partition_id);
END $body$;

-- Drops the messages of a partition in constant time. Those in `kept` stay.
CREATE FUNCTION oncebox_drop_payload(partition_id bigint, kept bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    -- Another process may have dropped it since it was listed.
    IF NOT EXISTS (SELECT 1 FROM oncebox_partition WHERE id = partition_id AND payload) THEN RETURN; END IF;
    EXECUTE format('ALTER TABLE oncebox_message DETACH PARTITION oncebox_message_%s', partition_id);
    EXECUTE format('INSERT INTO oncebox_message SELECT * FROM oncebox_message_%s WHERE seq = ANY ($1) AND lane = seq & 63', partition_id)
        USING kept;
    EXECUTE format('DROP TABLE oncebox_message_%s', partition_id);
    UPDATE oncebox_partition SET payload = false WHERE id = partition_id;
END $body$;

-- Drops the rest of a partition. Rows of messages in `kept` stay.
CREATE FUNCTION oncebox_drop_partition(partition_id bigint, kept bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM oncebox_partition WHERE id = partition_id) THEN RETURN; END IF;
    -- Duplicates that were counted while a sweep deleted their message. No other statement deletes them.
    DELETE FROM oncebox_duplicate
    WHERE lane = ANY (ARRAY(SELECT generate_series(0, 63)::smallint))
      AND seq BETWEEN partition_id << 36 AND ((partition_id + 1) << 36) - 1 AND seq NOT IN (SELECT unnest(kept));
    PERFORM oncebox_drop_payload(partition_id, kept);
    EXECUTE format('ALTER TABLE oncebox_outcome DETACH PARTITION oncebox_outcome_%s', partition_id);
    EXECUTE format('INSERT INTO oncebox_outcome SELECT * FROM oncebox_outcome_%s WHERE seq = ANY ($1) AND lane = seq & 63', partition_id)
        USING kept;
    EXECUTE format('DROP TABLE oncebox_outcome_%s', partition_id);
    DELETE FROM oncebox_partition WHERE id = partition_id;
END $body$;

-- Names the server and its timeline; 'unknown' on a service that hides them. Refuses a standby.
CREATE FUNCTION oncebox_here() RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'the server is a standby' USING ERRCODE = 'read_only_sql_transaction';
    END IF;
    RETURN (SELECT system_identifier FROM pg_control_system())
        || '/' || ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int;
EXCEPTION
    WHEN insufficient_privilege OR undefined_function OR feature_not_supported OR object_not_in_prerequisite_state
        OR internal_error THEN RETURN 'unknown';
END $body$;

-- Checks a connection before its first claim: tokens must not go back when the database did. If the timeline changed, or
-- the last token is older than one that the caller has, tokens continue in a new epoch, stored in their upper bits.
-- Returns the timeline and the latest epoch. Parameters: `timeline/check.sql`.
CREATE FUNCTION oncebox_check_timeline(bigint, bigint) RETURNS TABLE (timeline text, epoch bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    here text := oncebox_here();
    known text;
    given bigint;
    begun bigint;
BEGIN
    SELECT m.timeline INTO known FROM oncebox_meta m WHERE m.one;
    -- A role that only reads never claims, so it needs no token and begins no epoch. A role that takes tokens must begin
    -- epochs, and is refused below if it may not.
    IF NOT has_sequence_privilege('oncebox_token', 'USAGE') THEN
        RETURN QUERY SELECT here, coalesce(max(t.epoch), 0) FROM oncebox_timeline t;
        RETURN;
    END IF;
    SELECT t.last_value - (NOT t.is_called)::int INTO given FROM oncebox_token t;
    IF here NOT IN (known, 'unknown') OR given < $2 THEN
        -- One process at a time: the first begins the epoch, the others find it.
        SELECT m.timeline INTO known FROM oncebox_meta m WHERE m.one FOR UPDATE;
        SELECT t.last_value - (NOT t.is_called)::int INTO given FROM oncebox_token t;
        IF here = 'unknown' THEN here := known; END IF;
        IF here <> known OR given < $2 THEN
            -- At least the timeline's own number: a replica that missed an epoch must not begin the same one.
            begun := greatest((greatest(given, $2) >> 40) + 1, nullif(split_part(here, '/', 2), '')::bigint);
            PERFORM setval('oncebox_token', begun << 40);
            UPDATE oncebox_meta m SET timeline = here WHERE m.one;
            INSERT INTO oncebox_timeline (epoch, noticed_at, former, timeline, switched_at, lost_claims)
            VALUES (begun, coalesce($1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint), known, here,
                    pg_last_wal_replay_lsn()::text, CASE WHEN $2 >> 40 = given >> 40 THEN greatest($2 - given, 0) ELSE 0 END);
        END IF;
    END IF;
    RETURN QUERY SELECT here, coalesce(max(t.epoch), 0) FROM oncebox_timeline t;
END $body$;

-- Parks entries that wait behind an entry that parks. Lock order: the caller took the locks of the order queues in an
-- earlier statement. Parameters: as in `order/release.sql`.
CREATE FUNCTION oncebox_park(bigint, smallint[], smallint[], bytea[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off
SET enable_nestloop = on AS $body$
BEGIN
    -- Each statement must see what was committed while it waited for the lock.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'ordered messages need transactions at READ COMMITTED, and this one is at %',
            upper(current_setting('transaction_isolation')) USING ERRCODE = 'feature_not_supported';
    END IF;
    IF EXISTS (SELECT 1 FROM oncebox_poisoned b WHERE b.lane = ANY ($2) AND b.in_line IN ('blocks', 'parks')) AND EXISTS (
        SELECT 1 FROM unnest($2, $3, $4) AS l (lane, handler, order_key) WHERE (
            SELECT b.seq FROM oncebox_poisoned b
            WHERE b.lane = l.lane AND b.handler = l.handler AND b.order_key = l.order_key AND b.in_line = 'parks'
            LIMIT 1
        ) IS NOT NULL
    ) THEN
        WITH moment AS MATERIALIZED (
            SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
        ), head AS MATERIALIZED (
            SELECT l.*, (
                SELECT min(b.seq) FROM oncebox_poisoned b
                WHERE b.lane = l.lane AND b.handler = l.handler AND b.order_key = l.order_key AND b.in_line = 'parks'
            ) AS seq
            FROM unnest($2, $3, $4) AS l (lane, handler, order_key)
        ), parked AS (
            -- Found first, so that the server can only look rows up, even if it believes that the table is empty.
            DELETE FROM oncebox_scheduled p WHERE p.ctid = ANY (ARRAY(
                SELECT f.tid FROM head h CROSS JOIN LATERAL (
                    SELECT w.ctid AS tid FROM oncebox_scheduled w
                    WHERE w.lane = h.lane AND w.handler = h.handler AND w.order_key BETWEEN h.order_key AND h.order_key
                      AND w.seq > h.seq
                    ORDER BY w.order_key, w.seq OFFSET 0
                ) f
            ))
            RETURNING p.seq, p.token, p.attempts, p.crashes, p.generation, p.lane, p.handler, p.order_key, p.not_before, p.error
        )
        INSERT INTO oncebox_poisoned (seq, token, at, attempts, crashes, generation, lane, handler, reason, order_key, in_line,
                               not_before, error)
        SELECT p.seq, p.token, m.now, p.attempts, p.crashes, p.generation, p.lane, p.handler, 'parked', p.order_key, 'parked',
               p.not_before, p.error
        FROM parked p, moment m;
    END IF;
END $body$;

-- Releases the first entry of each order queue, unless an entry of the queue is released or runs, or an earlier one blocks
-- it. Then parks entries behind one that parks. Returns the least number that became work, by lane and handler. Lock
-- order: the caller took the locks of the queues in an earlier statement. Parameters: `order/release.sql`, each queue
-- once; $5 is true if the caller knows that no entry of the queues is released or runs.
CREATE FUNCTION oncebox_release(bigint, smallint[], smallint[], bytea[], boolean)
RETURNS TABLE (lane smallint, handler smallint, seq bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off
SET enable_nestloop = on AS $body$
BEGIN
    RETURN QUERY WITH moment AS MATERIALIZED (
        SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
    ), free AS MATERIALIZED (
        SELECT head.*, head.token = 0 AND head.attempts = 0 AND head.crashes = 0 AND head.generation = 0
               AND head.error IS NULL AND head.not_before <= m.now AS untouched
        FROM moment m, unnest($2, $3, $4) AS l (lane, handler, order_key) CROSS JOIN LATERAL (
            -- A range of one value: only the index of order keys has this order. So a plan that was made while the table
            -- was empty does not scan the primary key instead.
            SELECT p.ctid AS tid, p.seq, p.lane, p.handler, p.order_key, p.due, p.not_before, p.token, p.attempts, p.crashes,
                   p.generation, p.error
            FROM oncebox_scheduled p
            WHERE p.lane = l.lane AND p.handler = l.handler AND p.order_key BETWEEN l.order_key AND l.order_key
            ORDER BY p.order_key, p.seq LIMIT 1
        ) head
        WHERE head.due = 9223372036854775807
          AND ($5 OR (
            SELECT r.order_key FROM oncebox_entry r
            WHERE r.lane = l.lane AND r.handler = l.handler AND r.order_key BETWEEN l.order_key AND l.order_key
            ORDER BY r.order_key LIMIT 1
        ) IS NULL) AND (
            NOT EXISTS (SELECT 1 FROM oncebox_poisoned b WHERE b.lane = ANY ($2) AND b.in_line IN ('blocks', 'parks'))
            OR (
                SELECT b.seq FROM oncebox_poisoned b
                WHERE b.lane = l.lane AND b.handler = l.handler AND b.order_key = l.order_key
                  AND b.in_line IN ('blocks', 'parks') AND b.seq < head.seq
                LIMIT 1
            ) IS NULL)
    ), gone AS (
        DELETE FROM oncebox_scheduled p WHERE p.ctid = ANY (ARRAY(SELECT f.tid FROM free f WHERE f.untouched))
    ), work AS (
        INSERT INTO oncebox_entry AS w (seq, due, lane, handler, order_key)
        SELECT f.seq, f.not_before, f.lane, f.handler, f.order_key FROM free f WHERE f.untouched
        RETURNING w.lane, w.handler, w.seq
    ), dated AS (
        -- An entry that waited before, or is not due yet, stays and gets a due time.
        UPDATE oncebox_scheduled p SET due = greatest(p.not_before, m.now) FROM moment m
        WHERE p.ctid = ANY (ARRAY(SELECT f.tid FROM free f WHERE NOT f.untouched))
    )
    SELECT w.lane, w.handler, min(w.seq) FROM work w GROUP BY w.lane, w.handler;
    PERFORM oncebox_park($1, $2, $3, $4);
END $body$;

-- Makes released entries wait again if an older entry of their order queue has arrived since. Waits for a claim that is
-- taking one: then it runs, and stays as it is. Lock order: the caller took the locks of the queues in an earlier
-- statement. Parameters: `order/wait_turn.sql`.
CREATE FUNCTION oncebox_wait_turn(smallint[], smallint[], bytea[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off
SET enable_nestloop = on AS $body$
BEGIN
    WITH line AS MATERIALIZED (
        SELECT * FROM unnest($1, $2, $3) AS l (lane, handler, order_key)
    ), back AS (
        -- Found first, so that the server can only look rows up, even if it believes that the table is empty.
        DELETE FROM oncebox_entry p
        WHERE p.ctid = ANY (ARRAY(
            SELECT f.tid FROM line l CROSS JOIN LATERAL (
                SELECT w.ctid AS tid FROM oncebox_entry w
                WHERE w.lane = l.lane AND w.handler = l.handler AND w.order_key BETWEEN l.order_key AND l.order_key
                  AND w.token IS NULL AND (
                    SELECT older.seq FROM oncebox_scheduled older
                    WHERE older.lane = w.lane AND older.handler = w.handler AND older.order_key BETWEEN w.order_key AND w.order_key
                      AND older.seq < w.seq
                    ORDER BY older.order_key, older.seq LIMIT 1
                ) IS NOT NULL
                ORDER BY w.order_key OFFSET 0
            ) f
        )) AND p.token IS NULL
        RETURNING p.seq, p.due, p.lane, p.handler, p.order_key
    ), waits AS (
        INSERT INTO oncebox_scheduled (seq, due, not_before, lane, handler, order_key)
        SELECT b.seq, 9223372036854775807, b.due, b.lane, b.handler, b.order_key FROM back b
    )
    UPDATE oncebox_scheduled p SET due = 9223372036854775807, not_before = p.due
    WHERE p.ctid = ANY (ARRAY(
        SELECT f.tid FROM line l CROSS JOIN LATERAL (
            SELECT w.ctid AS tid FROM oncebox_scheduled w
            WHERE w.lane = l.lane AND w.handler = l.handler AND w.order_key BETWEEN l.order_key AND l.order_key
              AND w.due <> 9223372036854775807 AND (
                SELECT older.seq FROM oncebox_scheduled older
                WHERE older.lane = w.lane AND older.handler = w.handler AND older.order_key BETWEEN w.order_key AND w.order_key
                  AND older.seq < w.seq
                ORDER BY older.order_key, older.seq LIMIT 1
            ) IS NOT NULL
            ORDER BY w.order_key OFFSET 0
        ) f
    )) AND p.due <> 9223372036854775807;
END $body$;

-- Locks the rows of claims that hold, until the transaction ends. Returns their places. A function, because the server
-- chooses the plans on connections of handlers. Lock order: that of the parameters, which all callers share. Parameters:
-- `settle/hold.sql`.
CREATE FUNCTION oncebox_hold(int[], smallint[], smallint[], bigint[], bigint[], uuid[]) RETURNS SETOF int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off
SET enable_nestloop = on AS $body$
BEGIN
    RETURN QUERY WITH claim AS MATERIALIZED (
        SELECT * FROM unnest($1, $2, $3, $4, $5, $6) AS c (place, lane, handler, seq, token, claim_id)
    )
    SELECT s.place
    FROM claim s JOIN oncebox_entry r
      -- An array of one: the server can only look rows up, even if it believes that the table is empty.
      ON r.lane = ANY (ARRAY[s.lane]) AND r.handler = s.handler AND r.seq = s.seq
     AND r.token = s.token AND r.claim_id = s.claim_id
    FOR UPDATE OF r;
END $body$;

-- Writes settlements under their fence. Returns one row: the places of the claims that held, and the least number that
-- became work, by lane and handler. An order queue has at most one running entry: after its settlement none runs. Lock
-- order: the advisory locks in the order of $17, then the entries. Parameters: `settle/settle.sql`.
CREATE FUNCTION oncebox_settle(
    bigint, int[], smallint[], smallint[], bigint[], bigint[], uuid[], text[], bigint[], int[], int[], text[], text[], text[],
    boolean, int, int[], text[]
) RETURNS TABLE (places int[], lanes smallint[], handlers smallint[], seqs bigint[])
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off
SET enable_nestloop = on AS $body$
DECLARE
    line_lanes smallint[];
    line_handlers smallint[];
    line_keys bytea[];
BEGIN
    IF $15 AND current_setting('oncebox.handler', true) IS DISTINCT FROM 'on' THEN RETURN; END IF;
    -- A separate statement: one that waits for a lock and then reads would not see what was committed while it waited.
    PERFORM pg_advisory_xact_lock($16, l.number) FROM unnest($17) AS l (number);
    IF $8 IS NULL THEN
        WITH moment AS MATERIALIZED (
            SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
        ), ended AS (
            DELETE FROM oncebox_entry r
            USING unnest($2, $3, $4, $5, $6, $7) AS s (place, lane, handler, seq, token, claim_id)
            -- An array of one: the server can only look rows up, even if it believes that the table is empty.
            WHERE r.lane = ANY (ARRAY[s.lane]) AND r.handler = s.handler AND r.seq = s.seq
              AND r.token = s.token AND r.claim_id = s.claim_id
            RETURNING s.place, r.seq, r.lane, r.handler, r.token, r.attempts, r.crashes, r.generation, r.order_key, r.error
        ), finished AS (
            INSERT INTO oncebox_outcome (seq, token, at, attempts, crashes, generation, lane, handler, status, error)
            SELECT e.seq, e.token, (SELECT m.now FROM moment m), coalesce(e.attempts, 0), coalesce(e.crashes, 0),
                   coalesce(e.generation, 0), e.lane, e.handler, 'completed', e.error
            FROM ended e
        )
        SELECT array_agg(e.place), array_agg(e.lane) FILTER (WHERE e.order_key IS NOT NULL),
               array_agg(e.handler) FILTER (WHERE e.order_key IS NOT NULL),
               array_agg(e.order_key) FILTER (WHERE e.order_key IS NOT NULL)
        INTO places, line_lanes, line_handlers, line_keys FROM ended e;
    ELSE
        WITH moment AS MATERIALIZED (
            SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
        ), settlement AS MATERIALIZED (
            SELECT * FROM unnest($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $18)
                 AS s (place, lane, handler, seq, token, claim_id, next, delay, attempts, crashes, reason, error, in_line, event)
        ), ended AS (
            DELETE FROM oncebox_entry r USING settlement s
            -- An array of one: the server can only look rows up, even if it believes that the table is empty.
            WHERE r.lane = ANY (ARRAY[s.lane]) AND r.handler = s.handler AND r.seq = s.seq
              AND r.token = s.token AND r.claim_id = s.claim_id
            RETURNING s.place, r.seq, r.lane, r.handler, r.token, coalesce(r.generation, 0) AS generation, r.order_key, s.next,
                      s.delay, s.attempts, s.crashes, s.reason, s.in_line, coalesce(s.error, r.error) AS error, r.claim_id,
                      s.event, s.error AS said
        ), finished AS (
            INSERT INTO oncebox_outcome (seq, token, at, attempts, crashes, generation, lane, handler, status, error)
            SELECT e.seq, e.token, m.now, e.attempts, e.crashes, e.generation, e.lane, e.handler, e.next, e.error
            FROM ended e, moment m WHERE e.next IN ('completed', 'discarded')
        ), failed AS (
            INSERT INTO oncebox_attempt (seq, token, at, attempts, crashes, generation, lane, handler, claim_id, event, error)
            SELECT e.seq, e.token, m.now, e.attempts, e.crashes, e.generation, e.lane, e.handler, e.claim_id, e.event, e.said
            FROM ended e, moment m WHERE e.event IS NOT NULL
        ), again AS (
            INSERT INTO oncebox_scheduled (seq, due, not_before, token, attempts, crashes, generation, lane, handler, order_key, error)
            SELECT e.seq, CASE WHEN e.order_key IS NULL THEN least(m.now::numeric + e.delay, 9223372036854775807)::bigint
                               ELSE 9223372036854775807 END,
                   least(m.now::numeric + e.delay, 9223372036854775807)::bigint, e.token, e.attempts, e.crashes, e.generation,
                   e.lane, e.handler, e.order_key, e.error
            FROM ended e, moment m WHERE e.next = 'pending'
        ), spoiled AS (
            INSERT INTO oncebox_poisoned (seq, token, at, attempts, crashes, generation, lane, handler, reason, order_key, in_line, error)
            SELECT e.seq, e.token, m.now, e.attempts, e.crashes, e.generation, e.lane, e.handler, e.reason, e.order_key,
                   CASE WHEN e.order_key IS NOT NULL THEN coalesce(e.in_line, 'blocks') END, e.error
            FROM ended e, moment m WHERE e.next = 'poisoned'
        )
        SELECT array_agg(e.place), array_agg(e.lane) FILTER (WHERE e.order_key IS NOT NULL),
               array_agg(e.handler) FILTER (WHERE e.order_key IS NOT NULL),
               array_agg(e.order_key) FILTER (WHERE e.order_key IS NOT NULL)
        INTO places, line_lanes, line_handlers, line_keys FROM ended e;
    END IF;
    IF line_lanes IS NOT NULL THEN
        SELECT array_agg(r.lane), array_agg(r.handler), array_agg(r.seq) INTO lanes, handlers, seqs
        FROM (
            -- Each order queue once.
            SELECT array_agg(l.lane), array_agg(l.handler), array_agg(l.order_key)
            FROM (SELECT DISTINCT * FROM unnest(line_lanes, line_handlers, line_keys) AS u (lane, handler, order_key)) l
        ) d (line_lanes, line_handlers, line_keys)
        CROSS JOIN LATERAL oncebox_release($1, d.line_lanes, d.line_handlers, d.line_keys, true) AS r;
    END IF;
    RETURN NEXT;
END $body$;

-- Stores new messages and describes known ones. Returns a row per message: place in the batch, number (NULL if it raced or
-- is stale), true if new, true if stale, and the known key's fingerprint, handlers and age. Lock order: the advisory locks
-- in the order of $22, then the proofs by (lane, digest). Parameters: `accept/accept.sql`.
CREATE FUNCTION oncebox_accept(
    bigint, smallint, int[], smallint[], smallint[], bytea[], bytea[], bytea[], bigint[], text[], bytea[], text[], bytea[],
    bytea[], bytea[], bytea[], bigint[], int[], smallint[], text[], int, int[], smallint[], smallint[], bytea[], int[],
    int[], smallint[]
) RETURNS TABLE (place int, seq bigint, fresh boolean, stale boolean, fingerprint bytea, handlers bytea, age bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_nestloop = off SET work_mem = '16MB'
AS $body$
BEGIN
    -- A separate statement: one that waits for a lock and then reads would not see what was committed while it waited.
    PERFORM pg_advisory_xact_lock($21, l.number) FROM unnest($22) AS l (number);
    RETURN QUERY WITH moment AS MATERIALIZED (
        SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now, t.partition_id, t.counted
        FROM oncebox_meta t WHERE t.one
    ), forgotten AS MATERIALIZED (
        SELECT a.asked, max(coalesce(h.watermark, i.watermark)) AS watermark
        FROM unnest($27, $28) AS a (asked, handler) LEFT JOIN oncebox_handler h ON h.id = a.handler
        CROSS JOIN oncebox_inbox i WHERE i.id = $2
        GROUP BY a.asked
    ), offered AS MATERIALIZED (
        SELECT o.*, (m.partition_id << 36) | ((nextval('oncebox_counter') - m.counted) << 6) | o.home AS seq, m.now,
               -- There are few different groups. A join could change the order of the numbers.
               coalesce(o.time <= (SELECT a.watermark FROM forgotten a WHERE a.asked = o.asked), false) AS stale,
               known.seq IS NOT NULL AS known
        FROM moment m CROSS JOIN unnest($3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $20, $26)
             AS o (place, lane, home, digest, fingerprint, handlers, time, source, id, type, ordering_key, headers, payload,
                   order_key, delay, tenant, asked)
        LEFT JOIN LATERAL (
            SELECT p.seq FROM oncebox_proof p WHERE p.lane = o.lane AND p.digest = o.digest LIMIT 1
        ) known ON true
    ), fresh AS (
        INSERT INTO oncebox_proof AS p (seq, received_at, lane, inbox, digest, fingerprint, handlers, tenant)
        SELECT o.seq, o.now, o.lane, $2, o.digest, o.fingerprint, o.handlers, o.tenant FROM offered o
        -- A key that this statement saw is not new, even if a sweep deletes it meanwhile.
        WHERE NOT o.stale AND NOT o.known
        -- Prevents a deadlock of two batches that share keys.
        ORDER BY o.lane, o.digest
        ON CONFLICT (lane, digest) DO NOTHING
        RETURNING p.seq
    ), first AS MATERIALIZED (
        SELECT o.* FROM offered o JOIN fresh f ON f.seq = o.seq
    ), stored AS (
        INSERT INTO oncebox_message (seq, received_at, time, lane, inbox, digest, source, id, type, ordering_key, headers, payload,
                              tenant)
        SELECT f.seq, f.now, f.time, f.home, $2, f.digest, f.source, f.id, f.type, f.ordering_key, f.headers, f.payload, f.tenant
        FROM first f
    ), entry AS MATERIALIZED (
        SELECT f.seq, f.now, f.home, e.handler, f.order_key, f.delay
        FROM first f JOIN unnest($18, $19) AS e (place, handler) ON e.place = f.place
    ), head AS MATERIALIZED (
        -- The first entry of each empty order queue. The others wait until the settlement of the one before releases them.
        SELECT e.seq, e.handler
        FROM (
            SELECT DISTINCT ON (o.home, o.handler, o.order_key) o.seq, o.home, o.handler, o.order_key
            FROM entry o WHERE o.order_key IS NOT NULL ORDER BY o.home, o.handler, o.order_key, o.seq
        ) e
        WHERE (
            SELECT r.order_key FROM oncebox_entry r
            WHERE r.lane = e.home AND r.handler = e.handler AND r.order_key BETWEEN e.order_key AND e.order_key
            ORDER BY r.order_key LIMIT 1
        ) IS NULL AND (
            SELECT p.order_key FROM oncebox_scheduled p
            WHERE p.lane = e.home AND p.handler = e.handler AND p.order_key BETWEEN e.order_key AND e.order_key
            ORDER BY p.order_key LIMIT 1
        ) IS NULL AND (
            SELECT b.seq FROM oncebox_poisoned b
            WHERE b.lane = e.home AND b.handler = e.handler AND b.order_key = e.order_key AND b.in_line IN ('blocks', 'parks')
            LIMIT 1
        ) IS NULL
    ), arranged AS MATERIALIZED (
        SELECT e.*, h.seq IS NOT NULL OR e.order_key IS NULL AS free
        FROM entry e LEFT JOIN head h ON h.seq = e.seq AND h.handler = e.handler
    ), due AS (
        INSERT INTO oncebox_entry (seq, due, lane, handler, order_key)
        SELECT e.seq, e.now, e.home, e.handler, e.order_key FROM arranged e WHERE e.free AND e.delay = 0
    ), scheduled AS (
        INSERT INTO oncebox_scheduled (seq, due, not_before, lane, handler, order_key)
        SELECT e.seq, CASE WHEN e.free THEN e.now + e.delay ELSE 9223372036854775807 END, e.now + e.delay, e.home, e.handler,
               e.order_key
        FROM arranged e WHERE NOT e.free OR e.delay > 0
    )
    SELECT f.place, f.seq, true, false, NULL::bytea, NULL::bytea, NULL::bigint FROM first f
    UNION ALL
    SELECT o.place, known.seq, false, o.stale, known.fingerprint, known.handlers, o.now - known.received_at
    FROM offered o LEFT JOIN LATERAL (
        -- LIMIT keeps the planner from scanning the whole table.
        SELECT p.seq, p.received_at, p.fingerprint, p.handlers FROM oncebox_proof p WHERE p.lane = o.lane AND p.digest = o.digest LIMIT 1
    ) known ON true
    WHERE NOT EXISTS (SELECT 1 FROM fresh f WHERE f.seq = o.seq);
    IF cardinality($23) > 0 THEN
        PERFORM oncebox_park($1, $23, $24, $25);
    END IF;
END $body$;

-- Stores messages that all go to the same handlers, at once and without order, if all of them are new. Returns their places
-- and numbers, or stores nothing and returns no row if a key is known. A lookup of the keys first would take a good part of
-- the time, mostly in vain. The server does not log an error that is caught here. NULL stands for a time or tenant that no
-- message has, and for a source, type or headers that all share. Lock order: the proofs by (lane, digest). Parameters:
-- `accept/new.sql`.
CREATE FUNCTION oncebox_accept_new(
    bigint, smallint, bytea, smallint[], int[], smallint[], bytea[], bytea[], bigint[], text[], bytea[], text[], bytea[], bytea[],
    text[], text, text, bytea
) RETURNS TABLE (places int[], seqs bigint[])
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_nestloop = off SET work_mem = '16MB'
AS $body$
BEGIN
    WITH moment AS MATERIALIZED (
        SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now, partition_id, counted
        FROM oncebox_meta WHERE one
    ), offered AS MATERIALIZED (
        SELECT o.*, m.now, (m.partition_id << 36) | ((nextval('oncebox_counter') - m.counted) << 6) | o.lane AS seq
        FROM moment m CROSS JOIN unnest($5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
             AS o (place, lane, digest, fingerprint, time, source, id, type, headers, payload, tenant)
    ), proved AS (
        INSERT INTO oncebox_proof (seq, received_at, lane, inbox, digest, fingerprint, handlers, tenant)
        SELECT seq, now, lane, $2, digest, fingerprint, $3, tenant FROM offered
        -- Prevents a deadlock of two batches that share keys.
        ORDER BY lane, digest
    ), stored AS (
        INSERT INTO oncebox_message (seq, received_at, time, lane, inbox, digest, source, id, type, headers, payload, tenant)
        SELECT seq, now, time, lane, $2, digest, coalesce(source, $16), id, coalesce(type, $17), coalesce(headers, $18), payload,
               tenant
        FROM offered
    ), due AS (
        INSERT INTO oncebox_entry (seq, due, lane, handler)
        SELECT seq, now, lane, unnest($4) FROM offered
    )
    SELECT array_agg(place), array_agg(seq) INTO places, seqs FROM offered;
    RETURN NEXT;
EXCEPTION WHEN unique_violation THEN
    NULL;
END $body$;

-- Marks a key for a handler, unless it is marked or another open transaction has it. A transaction that finds the mark takes
-- no lock, so that duplicates do not wait for each other. Marks nothing in the tables of another database. A function,
-- because it runs in sessions of other programs, whose plans may be out of date. Lock order: the advisory lock of the key,
-- without waiting; then the mark. Parameters: `mark/mark.sql`.
CREATE FUNCTION oncebox_mark(bigint, bigint, smallint, bytea, text, text, bytea, uuid,
    OUT home boolean, OUT open boolean, OUT marked boolean, OUT known bytea)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $body$
DECLARE
    before boolean;
BEGIN
    WITH seen AS MATERIALIZED (
        SELECT (SELECT i.incarnation = $8 FROM oncebox_meta i WHERE i.one) AS home, m.digest IS NOT NULL AS before, m.fingerprint
        -- The concatenation keeps the planner from the index of ages.
        FROM (VALUES (1)) asked (one) LEFT JOIN oncebox_mark m ON m.lane = $3 AND m.digest = $4 AND m.handler || '' = $6
    ), gate AS MATERIALIZED (
        SELECT s.*, CASE WHEN s.before OR s.home IS NOT TRUE THEN true ELSE pg_try_advisory_xact_lock($1) END AS open FROM seen s
    ), made AS (
        INSERT INTO oncebox_mark (at, lane, digest, inbox, handler, fingerprint)
        SELECT coalesce($2, (extract(epoch FROM statement_timestamp()) * 1000)::bigint), $3, $4, $5, $6, $7 FROM gate g
        WHERE g.home AND g.open AND NOT g.before
        ON CONFLICT (lane, digest, handler) DO NOTHING
        RETURNING 1
    )
    SELECT g.home, g.open, g.before, EXISTS (SELECT 1 FROM made), g.fingerprint
    INTO home, open, before, marked, known FROM gate g;
    IF home AND open AND NOT before AND NOT marked THEN
        -- Committed since the statement began: a new statement sees it.
        SELECT m.fingerprint INTO known FROM oncebox_mark m WHERE m.lane = $3 AND m.digest = $4 AND m.handler || '' = $6;
    END IF;
END $body$;

REVOKE ALL ON FUNCTION oncebox_make_partition(bigint), oncebox_drop_payload(bigint, bigint[]), oncebox_drop_partition(bigint, bigint[]),
    oncebox_mark(bigint, bigint, smallint, bytea, text, text, bytea, uuid),
    oncebox_park(bigint, smallint[], smallint[], bytea[]), oncebox_release(bigint, smallint[], smallint[], bytea[], boolean),
    oncebox_wait_turn(smallint[], smallint[], bytea[]),
    oncebox_hold(int[], smallint[], smallint[], bigint[], bigint[], uuid[]),
    oncebox_accept(bigint, smallint, int[], smallint[], smallint[], bytea[], bytea[], bytea[], bigint[], text[], bytea[], text[], bytea[],
            bytea[], bytea[], bytea[], bigint[], int[], smallint[], text[], int, int[], smallint[], smallint[], bytea[], int[],
            int[], smallint[]),
    oncebox_accept_new(bigint, smallint, bytea, smallint[], int[], smallint[], bytea[], bytea[], bigint[], text[], bytea[], text[], bytea[],
                bytea[], text[], text, text, bytea),
    oncebox_settle(bigint, int[], smallint[], smallint[], bigint[], bigint[], uuid[], text[], bigint[], int[], int[], text[], text[],
            text[], boolean, int, int[], text[]) FROM PUBLIC;

INSERT INTO oncebox_meta (lanes, partition_id, counted, timeline) VALUES (:lanes, 1, 0, oncebox_here());
SELECT oncebox_make_partition(1), oncebox_make_partition(2);
