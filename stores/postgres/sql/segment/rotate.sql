-- Sends new messages to the next segment. $1 the segment so far, $2 now.
WITH ended AS (
    UPDATE @segment SET ended_at = $2 WHERE id = $1
)
UPDATE @meta SET segment = $1 + 1, counted = (SELECT last_value FROM @counter), started_at = $2 WHERE segment = $1
