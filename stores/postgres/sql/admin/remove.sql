-- Takes an entry out that waits or is poisoned. $1 number, $2 handler.
WITH entry AS (
    DELETE FROM oncebox_entry WHERE lane = $1 & 63 AND handler = $2 AND seq = $1 AND token IS NULL RETURNING seq
), scheduled AS (
    DELETE FROM oncebox_scheduled WHERE lane = $1 & 63 AND seq = $1 AND handler = $2 RETURNING seq
), poisoned AS (
    DELETE FROM oncebox_poisoned WHERE lane = $1 & 63 AND seq = $1 AND handler = $2 RETURNING seq
)
SELECT seq FROM entry UNION ALL SELECT seq FROM scheduled UNION ALL SELECT seq FROM poisoned
