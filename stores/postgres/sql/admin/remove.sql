-- Deletes a pending or poisoned entry. Returns no row if a worker holds it.
-- $1 seq bigint
-- $2 handler smallint
-- Index: primary keys of oncebox_entry, oncebox_scheduled and oncebox_poisoned.
-- Lock order: the row of the entry.
WITH entry AS (
    DELETE FROM oncebox_entry WHERE lane = $1 & 63 AND handler = $2 AND seq = $1 AND token IS NULL RETURNING seq
), scheduled AS (
    DELETE FROM oncebox_scheduled WHERE lane = $1 & 63 AND seq = $1 AND handler = $2 RETURNING seq
), poisoned AS (
    DELETE FROM oncebox_poisoned WHERE lane = $1 & 63 AND seq = $1 AND handler = $2 RETURNING seq
)
SELECT seq FROM entry UNION ALL SELECT seq FROM scheduled UNION ALL SELECT seq FROM poisoned
