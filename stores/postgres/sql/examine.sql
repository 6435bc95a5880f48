-- name: examine_indexes
-- Lists those of the given indexes that are missing or invalid.
-- $1 schema text
-- $2 names text[]
SELECT w.name, c.oid IS NULL
FROM unnest($2::text[]) AS w (name)
LEFT JOIN pg_class c ON c.relname = w.name AND c.relkind IN ('i', 'I') AND c.relnamespace = to_regnamespace(quote_ident($1))
LEFT JOIN pg_index i ON i.indexrelid = c.oid
WHERE c.oid IS NULL OR NOT i.indisvalid
ORDER BY w.name;

-- name: examine_late
-- Returns the longest time between the first delivery and a redelivery, over the last $3 redelivered messages of each
-- lane.
-- $1 inbox smallint
-- $2 lanes smallint[]: all of them
-- $3 limit bigint
-- Index: primary key of oncebox_duplicate, oncebox_proof_seq.
SELECT max(a.last - p.received_at)
FROM unnest($2::int2[]) l (lane)
CROSS JOIN LATERAL (SELECT seq, last FROM oncebox_duplicate a WHERE a.lane = l.lane ORDER BY a.seq DESC LIMIT $3) a
CROSS JOIN LATERAL (SELECT received_at, inbox FROM oncebox_proof p WHERE p.seq = a.seq LIMIT 1) p
WHERE p.inbox = $1;

-- name: examine_lost
-- Counts entries without a message, of the first $1 in each table of entries. Rows below the first partition stand for a
-- paused order key and have no message.
-- $1 limit bigint
-- Index: the primary keys.
SELECT count(*) FROM (
    (SELECT lane, seq FROM oncebox_entry ORDER BY lane, handler, seq LIMIT $1)
    UNION ALL (SELECT lane, seq FROM oncebox_scheduled ORDER BY lane, seq LIMIT $1)
    UNION ALL (SELECT lane, seq FROM oncebox_poisoned WHERE seq >= 68719476736 ORDER BY lane, seq LIMIT $1)
) e WHERE NOT EXISTS (SELECT 1 FROM oncebox_message m WHERE m.lane = e.lane AND m.seq = e.seq);

-- name: examine_settings
-- Reads settings of the server as other sessions have them, and its clock.
SELECT name, CASE WHEN name = 'synchronous_commit' THEN coalesce(reset_val, setting) ELSE setting END FROM pg_settings
WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum')
UNION ALL SELECT 'clock', (extract(epoch FROM clock_timestamp()) * 1000)::bigint::text;

-- name: examine_tables
-- Lists tables with more than $1 dead rows, and more dead than live ones.
-- $1 limit bigint
SELECT s.relname::text, s.n_dead_tup, s.n_live_tup FROM pg_stat_user_tables s
WHERE s.relid IN ('oncebox_entry'::regclass, 'oncebox_scheduled'::regclass, 'oncebox_proof'::regclass, 'oncebox_claim'::regclass, 'oncebox_mark'::regclass,
                  'oncebox_poisoned'::regclass)
  AND s.n_dead_tup > $1 AND s.n_dead_tup > s.n_live_tup
ORDER BY 1;

-- name: examine_transactions
-- Lists transactions that hold vacuum back for longer than $1 seconds. A role without the right to see other sessions
-- sees its own.
-- $1 seconds float8
SELECT 'session ' || pid || coalesce(' of ' || usename, '') || ' (' || coalesce(state, 'unknown') || ')',
       extract(epoch FROM clock_timestamp() - xact_start)::bigint
FROM pg_stat_activity
WHERE datname = current_database() AND xact_start < clock_timestamp() - make_interval(secs => $1) AND pid <> pg_backend_pid()
UNION ALL
SELECT 'the prepared transaction ' || gid, extract(epoch FROM clock_timestamp() - prepared)::bigint
FROM pg_prepared_xacts WHERE database = current_database() AND prepared < clock_timestamp() - make_interval(secs => $1);

-- name: examine_windows
-- Lists handler keys whose window never ends; an empty key stands for the inbox.
-- $1 inbox text
-- $2 span bigint: that stands for no end, in ms
-- Index: none: the table is small.
SELECT w.handler FROM oncebox_window w JOIN oncebox_inbox i ON i.id = w.inbox WHERE i.name = $1 AND w.span >= $2;
