-- Part of `one` and `plain`: the time up to which a message's handlers were swept. `:doubted` is the parameter with
-- these handlers, former ones included, or 0 for none.
-- $2 inbox smallint
-- Index: primary keys of oncebox_handler and oncebox_inbox.
(SELECT max(coalesce(h.watermark, i.watermark))
 FROM unnest(:doubted::int2[]) AS f (handler) LEFT JOIN oncebox_handler h ON h.id = f.handler CROSS JOIN oncebox_inbox i WHERE i.id = $2)
