    SELECT tid, later_tid
    FROM (
        SELECT d.*, row_number() OVER (PARTITION BY d.want ORDER BY d.due, d.seq) AS place
        FROM (SELECT * FROM fresh UNION ALL SELECT * FROM postponed) d
    ) ranked
    WHERE place <= ($12::int8[])[want]
