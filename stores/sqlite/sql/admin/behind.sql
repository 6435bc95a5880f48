-- What is behind an entry that holds its order key back: how many, and when the first of them came.
WITH behind (seq) AS (
    SELECT seq FROM oncebox_entry WHERE handler = ?1 AND order_key = ?2 AND seq > ?3
    UNION ALL
    SELECT seq FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2 AND in_line = 'parked' AND seq > ?3
)
SELECT count(*), (SELECT received_at FROM oncebox_message WHERE seq = (SELECT min(seq) FROM behind)) FROM behind
