SELECT count(*) FROM oncebox_mark WHERE handler = 'inline'
