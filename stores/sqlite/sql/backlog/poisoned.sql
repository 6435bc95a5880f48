-- Poisoned entries by handler. Looks at no more of them than a limit: beyond it, a person has enough to look at.
SELECT handler, count(*) FROM (SELECT handler FROM oncebox_poisoned LIMIT ?1) GROUP BY handler
