-- Poisoned entries by handler. Looks at no more of them than a limit: beyond it, a person has enough to look at. A line that an operator
-- holds back has a row with a number below zero, which stands for no entry. ?1 the limit.
SELECT handler, count(*) FROM (SELECT handler FROM oncebox_poisoned WHERE seq > 0 LIMIT ?1) GROUP BY handler
