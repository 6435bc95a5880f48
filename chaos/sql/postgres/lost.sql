-- Ids of messages that failovers lost, as the store reports them.
SELECT convert_from(id, 'UTF8') FROM oncebox_timeline, unnest(lost_ids) AS id
