-- Deletes finished messages that are past their windows, of a given list: few, and far apart. Returns the number of
-- deleted messages, those of the list that no longer exist, and the number of deleted entries.
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- $3 seqs bigint[]
-- $4 span bigint: of messages without entries and of handlers without one, in ms
-- $5 handler smallint[] (with a window)
-- $6 span bigint[] in ms
-- Index: oncebox_proof_seq, the primary keys of the tables of entries.
-- Lock order: oncebox_proof, skips locked rows. Then oncebox_duplicate by (lane, seq).
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), page AS MATERIALIZED (
    SELECT p.* FROM unnest($3::int8[]) AS o (seq) CROSS JOIN LATERAL (
        SELECT p.seq, (p.seq & 63)::int2 AS home, p.received_at, p.lane, p.digest, p.handlers, p.ctid AS tid, p.xmin AS version
        FROM oncebox_proof p WHERE p.seq = o.seq AND p.inbox = $2 LIMIT 1
    ) p
), finished AS MATERIALIZED (
    SELECT p.tid, p.version FROM page p, moment m
    WHERE p.received_at <= CASE octet_length(p.handlers) WHEN 0 THEN m.now - $4 ELSE m.now END
      AND (SELECT e.seq FROM oncebox_entry e WHERE e.lane = p.home AND e.seq = p.seq
           AND e.handler = ANY (ARRAY(SELECT h.id FROM oncebox_handler h WHERE h.inbox = $2)) LIMIT 1) IS NULL
      AND (SELECT e.seq FROM oncebox_scheduled e WHERE e.lane = p.home AND e.seq = p.seq LIMIT 1) IS NULL
      AND (SELECT e.seq FROM oncebox_poisoned e WHERE e.lane = p.home AND e.seq = p.seq LIMIT 1) IS NULL
      AND (SELECT e.seq FROM oncebox_outcome e WHERE e.lane = p.home AND e.seq = p.seq
           AND e.at > m.now - coalesce(($6::int8[])[array_position($5::int2[], e.handler)], $4) LIMIT 1) IS NULL
), held AS MATERIALIZED (
    -- The transaction already holds keys, so it must not wait: the next sweep reads rows that are locked now.
    SELECT p.ctid AS tid FROM finished f JOIN oncebox_proof p ON p.ctid = f.tid AND p.xmin = f.version FOR UPDATE OF p SKIP LOCKED
), gone AS (
    DELETE FROM oncebox_proof p USING held h WHERE p.ctid = h.tid
    RETURNING p.seq, p.received_at, p.handlers
), messages AS (
    DELETE FROM oncebox_message_kept k USING gone g WHERE k.lane = ANY (ARRAY[(g.seq & 63)::int2]) AND k.seq = g.seq
), outcomes AS (
    DELETE FROM oncebox_outcome_kept k USING gone g WHERE k.lane = ANY (ARRAY[(g.seq & 63)::int2]) AND k.seq = g.seq
), attempts AS (
    DELETE FROM oncebox_attempt k USING gone g WHERE k.lane = ANY (ARRAY[(g.seq & 63)::int2]) AND k.seq = g.seq
), duplicates AS (
    -- `history/count_duplicates` locks rows in this order.
    DELETE FROM oncebox_duplicate k USING (SELECT g.seq FROM gone g ORDER BY g.seq & 63, g.seq OFFSET 0) g
    WHERE k.lane = ANY (ARRAY[(g.seq & 63)::int2]) AND k.seq = g.seq
), newest AS MATERIALIZED (
    SELECT handlers, max(received_at) AS at FROM gone GROUP BY handlers
), forgotten AS (
    -- Joined handlers share their watermark.
    UPDATE oncebox_handler h SET watermark = n.at
    FROM (
        SELECT coalesce(o.same_as, o.id) AS id, max(n.at) AS at
        FROM newest n CROSS JOIN generate_series(0, octet_length(n.handlers) - 2, 2) i
        JOIN oncebox_handler o ON o.id = get_byte(n.handlers, i) * 256 + get_byte(n.handlers, i + 1) GROUP BY 1
    ) n
    WHERE coalesce(h.same_as, h.id) = n.id AND h.watermark < n.at
), unrouted AS (
    UPDATE oncebox_inbox i SET watermark = greatest(i.watermark, n.at) FROM newest n WHERE i.id = $2 AND octet_length(n.handlers) = 0
)
SELECT (SELECT count(*) FROM gone),
       ARRAY(SELECT o.seq FROM unnest($3::int8[]) AS o (seq)
             WHERE o.seq <> ALL (ARRAY(SELECT p.seq FROM page p)) OR o.seq = ANY (ARRAY(SELECT g.seq FROM gone g))),
       (SELECT coalesce(sum(octet_length(handlers) / 2), 0)::int8 FROM gone)
