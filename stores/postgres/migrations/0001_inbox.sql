-- The tables of an inbox. `@name` stands for a table, sequence or function in the configured schema and with the
-- configured prefix, `#name` for the bare name of an index.
--
-- A message's number (seq) is made of three parts: segment << 36 | count << 6 | lane. Later messages have greater numbers;
-- the segment says which partition a message lies in, and the lane which of a few subtrees of every index.

-- How often a message was offered as new, and how often entries were claimed: they only grow.
CREATE SEQUENCE @counter AS bigint;
CREATE SEQUENCE @token AS bigint;

-- One row: what all messages share.
CREATE TABLE @meta (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    -- Made when the tables are made: tells a restored copy from the original.
    incarnation uuid NOT NULL DEFAULT gen_random_uuid(),
    lanes smallint NOT NULL CHECK (lanes BETWEEN 1 AND 64),
    -- The segment new messages go to, the counter when it began, and the time of its first sweep.
    segment bigint NOT NULL CHECK (segment > 0),
    counted bigint NOT NULL CHECK (counted >= 0),
    started_at bigint
);

CREATE TABLE @inbox (
    id smallint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    name text NOT NULL UNIQUE,
    -- The greatest receive time of a message without entries that was swept: one that says it is older may have been here.
    watermark bigint NOT NULL,
    -- Who sweeps it, from page to page; nobody else does until this time.
    sweeper uuid,
    sweeper_until bigint NOT NULL DEFAULT 0
);

CREATE TABLE @handler (
    id smallint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    inbox smallint NOT NULL REFERENCES @inbox (id),
    key text NOT NULL,
    paused boolean NOT NULL DEFAULT false,
    -- The greatest receive time ever swept of its messages: one that says it is older may have run before.
    watermark bigint NOT NULL DEFAULT -9223372036854775808,
    UNIQUE (inbox, key)
);

-- How long handlers remember, as processes have said it. The longest that is not over counts.
CREATE TABLE @window (
    inbox smallint NOT NULL REFERENCES @inbox (id),
    -- Empty for the window of the inbox.
    handler text NOT NULL,
    span bigint NOT NULL CHECK (span >= 0),
    until bigint NOT NULL,
    PRIMARY KEY (inbox, handler, span)
);

-- How far sweeps have come with each window, and the messages behind that which have to be looked at again.
CREATE TABLE @walk (
    inbox smallint NOT NULL REFERENCES @inbox (id),
    span bigint NOT NULL,
    -- Tells the windows under which it came so far.
    digest bigint NOT NULL,
    upto bigint NOT NULL,
    behind bigint[] NOT NULL,
    PRIMARY KEY (inbox, span)
);

-- The dedupe ledger: one exact unique index over everything that is remembered. Leaves by ordered, bounded deletes.
CREATE TABLE @proof (
    seq bigint NOT NULL,
    received_at bigint NOT NULL,
    -- Of the digest alone, so that a key has one place whatever else the message says.
    lane smallint NOT NULL CHECK (lane BETWEEN 0 AND 63),
    inbox smallint NOT NULL,
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    fingerprint bytea NOT NULL CHECK (octet_length(fingerprint) = 16),
    -- The handlers it has entries for: their ids, two bytes each.
    handlers bytea NOT NULL CHECK (octet_length(handlers) % 2 = 0),
    tenant text,
    PRIMARY KEY (lane, digest)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1);
CREATE INDEX #proof_seq ON @proof (seq);
-- For an operator of one tenant. Messages without one are not in it, and cost nothing.
CREATE INDEX #proof_tenant ON @proof (tenant, inbox, seq) WHERE tenant IS NOT NULL;

-- What was accepted; never updated. A partition leaves whole.
CREATE TABLE @message (
    seq bigint NOT NULL,
    received_at bigint NOT NULL,
    time bigint,
    lane smallint NOT NULL,
    inbox smallint NOT NULL,
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    source text NOT NULL,
    id bytea NOT NULL,
    type text NOT NULL,
    ordering_key bytea,
    headers bytea NOT NULL,
    payload bytea NOT NULL,
    tenant text,
    PRIMARY KEY (lane, seq),
    CHECK (lane = seq & 63)
) PARTITION BY RANGE (seq);
-- Messages that outlive their partition, because somebody still has to look at them.
CREATE TABLE @message_kept PARTITION OF @message DEFAULT;

-- The hot table: work that nobody has touched, due at once, and work that is leased. A lease is written in place, where the page has
-- room for it; a row leaves when it is settled.
CREATE TABLE @entry (
    seq bigint NOT NULL,
    -- When it is due: claims are handed out in this order.
    due bigint NOT NULL,
    lane smallint NOT NULL,
    handler smallint NOT NULL,
    -- The lease; none until somebody claims it.
    token bigint CHECK (token > 0),
    claimed_at bigint,
    lease_until bigint,
    claim_id uuid,
    -- What it brings along if it has waited before; nothing stands for 0.
    attempts integer,
    crashes integer,
    generation integer,
    order_key bytea,
    error text,
    PRIMARY KEY (lane, handler, seq),
    CHECK (lane = seq & 63),
    CHECK ((token IS NULL) = (claim_id IS NULL))
) WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 1000000);
-- One with an order key is here only while it runs.
CREATE INDEX #entry_order ON @entry (lane, handler, order_key) WHERE order_key IS NOT NULL;

-- One row for each call of claim that found something: where its entries lie. Finds them again when an answer was lost, and
-- when their leases have run out.
CREATE TABLE @claim (
    claim_id uuid PRIMARY KEY,
    -- Not before this time a lease of it can run out.
    until bigint NOT NULL,
    -- By range of numbers within a lane and handler.
    lanes smallint[] NOT NULL,
    handlers smallint[] NOT NULL,
    firsts bigint[] NOT NULL,
    lasts bigint[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Work that waits for its time: retries, delays, and entries that wait for an earlier one with the same order key.
CREATE TABLE @later (
    seq bigint NOT NULL,
    -- The greatest integer for an entry that waits behind another one with the same order key.
    due bigint NOT NULL,
    -- For one with an order key: the due time it asked for.
    not_before bigint NOT NULL,
    -- The claim that settled it last.
    token bigint NOT NULL DEFAULT 0,
    attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
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
CREATE INDEX #later_due ON @later (lane, handler, due, seq) WHERE crashes = 0;
CREATE INDEX #later_suspect ON @later (lane, handler, due, seq) WHERE crashes > 0;
CREATE INDEX #later_order ON @later (lane, handler, order_key, seq) WHERE order_key IS NOT NULL;
-- At most one of a line is let go: found without reading those that wait behind it.
CREATE INDEX #later_head ON @later (lane, handler, order_key) WHERE order_key IS NOT NULL AND due <> 9223372036854775807;

-- What was finished; append-only, partitioned like the messages.
CREATE TABLE @outcome (
    seq bigint NOT NULL,
    token bigint NOT NULL,
    at bigint NOT NULL,
    attempts integer NOT NULL,
    crashes integer NOT NULL,
    generation integer NOT NULL,
    lane smallint NOT NULL,
    handler smallint NOT NULL,
    status text NOT NULL CHECK (status IN ('completed', 'discarded')),
    error text,
    PRIMARY KEY (lane, seq, handler, generation),
    CHECK (lane = seq & 63)
) PARTITION BY RANGE (seq);
CREATE TABLE @outcome_kept PARTITION OF @outcome DEFAULT;

-- What failed for good and waits for a person.
CREATE TABLE @poisoned (
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
    -- With an order key: what it is to those behind it.
    in_line text CHECK (in_line IN ('blocks', 'parks', 'skipped', 'parked')),
    -- For one that is parked: the due time it asked for.
    not_before bigint,
    error text,
    PRIMARY KEY (lane, seq, handler),
    CHECK (lane = seq & 63),
    CHECK ((order_key IS NULL) = (in_line IS NULL))
);
CREATE INDEX #poisoned_order ON @poisoned (lane, handler, order_key, in_line, seq) WHERE order_key IS NOT NULL;

-- Messages that came under a known key with another payload, or too late to know whether they ran before.
CREATE TABLE @aside (
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

-- Marks of once and inline handlers, written in the caller's own transaction. Leaves like the proof.
CREATE TABLE @mark (
    at bigint NOT NULL,
    lane smallint NOT NULL CHECK (lane BETWEEN 0 AND 63),
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    inbox text NOT NULL,
    handler text NOT NULL,
    -- What a duplicate is answered with.
    result bytea,
    PRIMARY KEY (lane, digest, handler)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
-- Each handler has its own window.
CREATE INDEX #mark_age ON @mark (inbox, handler, at);

-- The partitions there are, beside the two that keep what outlives them.
CREATE TABLE @segment (
    id bigint PRIMARY KEY CHECK (id > 0),
    -- When the next one began; nothing is added to it from then on.
    ended_at bigint,
    -- Whether its messages are still there; the outcomes go with the row.
    payload boolean NOT NULL DEFAULT true
);

-- Makes the partitions of a segment. Runs with the rights of whoever migrated, so that the service needs none.
CREATE FUNCTION @make_segment(segment bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    parent text;
BEGIN
    IF EXISTS (SELECT 1 FROM @segment WHERE id = segment) THEN RETURN; END IF;
    FOREACH parent IN ARRAY ARRAY['message', 'outcome'] LOOP
        -- Attached afterwards: making it as a partition at once would lock out everybody who reads.
        EXECUTE format('CREATE TABLE @%s_%s (LIKE @%s INCLUDING ALL)', parent, segment, parent);
        EXECUTE format('ALTER TABLE @%s ATTACH PARTITION @%s_%s FOR VALUES FROM (%s) TO (%s)',
            parent, parent, segment, segment << 36, (segment + 1) << 36);
    END LOOP;
    INSERT INTO @segment (id) VALUES (segment);
END $body$;

-- Drops the messages of a segment in constant time. Those in `kept` stay.
CREATE FUNCTION @drop_payload(segment bigint, kept bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    -- Another process may have been here since it was listed.
    IF NOT EXISTS (SELECT 1 FROM @segment WHERE id = segment AND payload) THEN RETURN; END IF;
    EXECUTE format('ALTER TABLE @message DETACH PARTITION @message_%s', segment);
    EXECUTE format('INSERT INTO @message SELECT * FROM @message_%s WHERE seq = ANY ($1) AND lane = seq & 63', segment)
        USING kept;
    EXECUTE format('DROP TABLE @message_%s', segment);
    UPDATE @segment SET payload = false WHERE id = segment;
END $body$;

-- Drops what is left of a segment. What is in `kept` stays.
CREATE FUNCTION @drop_segment(segment bigint, kept bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM @segment WHERE id = segment) THEN RETURN; END IF;
    PERFORM @drop_payload(segment, kept);
    EXECUTE format('ALTER TABLE @outcome DETACH PARTITION @outcome_%s', segment);
    EXECUTE format('INSERT INTO @outcome SELECT * FROM @outcome_%s WHERE seq = ANY ($1) AND lane = seq & 63', segment)
        USING kept;
    EXECUTE format('DROP TABLE @outcome_%s', segment);
    DELETE FROM @segment WHERE id = segment;
END $body$;

REVOKE ALL ON FUNCTION @make_segment(bigint), @drop_payload(bigint, bigint[]), @drop_segment(bigint, bigint[]) FROM PUBLIC;

INSERT INTO @meta (lanes, segment, counted) VALUES (:lanes, 1, 0);
SELECT @make_segment(1), @make_segment(2);
