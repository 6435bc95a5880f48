-- Part of `one` and `plain`: replaces the watermark for messages without a time, which are never stale.
NULL::bigint
