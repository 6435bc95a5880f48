-- Up to when the handlers of a message have forgotten what they had. $2 inbox, `:doubted` each handler, former ones included,
-- or 0 without any.
(SELECT max(coalesce(h.watermark, i.watermark))
 FROM unnest(:doubted::int2[]) AS f (handler) LEFT JOIN oncebox_handler h ON h.id = f.handler CROSS JOIN oncebox_inbox i WHERE i.id = $2)
