-- Poisoned entries: message, handler, generation, reason, token, attempts, crashes.
SELECT p.seq, h.key, p.generation, p.reason, p.token, p.attempts, p.crashes
FROM oncebox_poisoned p JOIN oncebox_handler h ON h.id = p.handler
