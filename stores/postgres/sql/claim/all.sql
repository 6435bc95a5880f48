    -- Each place gave no more than its share: what has waited before goes first, and nothing has to be sorted.
    SELECT d.tid, d.later_tid
    FROM generate_subscripts($12::int8[], 1) w CROSS JOIN LATERAL (
        SELECT tid, later_tid FROM postponed WHERE want = w
        UNION ALL SELECT tid, later_tid FROM fresh WHERE want = w
        LIMIT ($12::int8[])[w]
    ) d
