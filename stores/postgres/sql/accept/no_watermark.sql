-- In place of the look at what was forgotten, for messages that say no time: they cannot be too old.
NULL::bigint
