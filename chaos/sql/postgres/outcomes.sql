-- Finished entries: message, handler, generation, status, token, attempts, crashes.
SELECT o.seq, h.key, o.generation, o.status, o.token, o.attempts, o.crashes
FROM oncebox_outcome o JOIN oncebox_handler h ON h.id = o.handler
