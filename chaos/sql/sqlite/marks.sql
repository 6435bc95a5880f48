-- Number of marks of the handler `inline`.
SELECT count(*) FROM oncebox_mark WHERE handler = 'inline'
