-- Part of `claim`, as `:found`: takes all entries that were found. Entries that waited before go first, and no sort is
-- needed.
-- Index: primary key of oncebox_entry.
-- Lock order: oncebox_entry by number within lane and handler; skips locked rows.
postponed AS MATERIALIZED (
    SELECT tid FROM waiting
), fresh AS MATERIALIZED (
    SELECT l.lane, l.handler, r.*
    FROM look l CROSS JOIN LATERAL (
        SELECT array_agg(e.tid) AS tids, min(e.seq) AS first, max(e.seq) AS last, array_agg(e.seq) AS seqs,
               array_agg(e.due) AS dues, array_agg(e.order_key) AS order_keys
        FROM (
            SELECT e.ctid AS tid, e.seq, e.due, e.order_key FROM oncebox_entry e
            WHERE e.lane = l.lane AND e.handler = l.handler AND e.seq >= l.least AND e.token IS NULL
              AND :first_of_line
            ORDER BY e.seq
            LIMIT greatest(0, l.at_most - (
                SELECT count(*) FROM waiting w WHERE w.want = l.want AND w.lane = l.lane AND w.handler = l.handler))
            FOR UPDATE SKIP LOCKED
        ) e
    ) r
    WHERE r.first IS NOT NULL
)
