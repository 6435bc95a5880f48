-- Part of `claim`, as `:found`: takes the oldest entries of all lanes, up to the limit of each want.
-- $14 limit bigint[] (by want)
-- Index: primary key of oncebox_entry.
-- Lock order: oncebox_entry by number within lane and handler; skips locked rows.
untaken AS MATERIALIZED (
    SELECT l.want, l.lane, l.handler, r.*
    FROM look l CROSS JOIN LATERAL (
        SELECT e.ctid AS tid, e.seq, e.due, e.order_key FROM oncebox_entry e
        WHERE e.lane = l.lane AND e.handler = l.handler AND e.seq >= l.least AND e.token IS NULL
          AND :first_of_line
        ORDER BY e.seq LIMIT l.at_most FOR UPDATE SKIP LOCKED
    ) r
), chosen AS MATERIALIZED (
    SELECT ranked.*
    FROM (
        SELECT d.*, row_number() OVER (PARTITION BY d.want ORDER BY d.due, d.seq) AS place
        FROM (
            SELECT want, lane, handler, due, seq, order_key, tid, NULL::tid AS scheduled_tid FROM untaken
            UNION ALL
            SELECT want, lane, handler, due, seq, NULL, NULL, tid FROM waiting
        ) d
    ) ranked
    WHERE place <= ($14::int8[])[want]
), postponed AS MATERIALIZED (
    SELECT scheduled_tid AS tid FROM chosen WHERE scheduled_tid IS NOT NULL
), fresh AS MATERIALIZED (
    SELECT lane, handler, array_agg(tid) AS tids, min(seq) AS first, max(seq) AS last, array_agg(seq) AS seqs,
           array_agg(due) AS dues, array_agg(order_key) AS order_keys
    FROM chosen WHERE tid IS NOT NULL GROUP BY lane, handler
)
