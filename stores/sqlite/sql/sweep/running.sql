-- Lists the messages with a running entry.
-- Index: none: the table is small.
SELECT seq FROM oncebox_running
