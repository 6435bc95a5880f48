SELECT convert_from(id, 'UTF8') FROM oncebox_timeline, unnest(lost_ids) AS id
