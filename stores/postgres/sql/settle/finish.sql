-- Runs the statement that `session/finish.sql` prepared, for one claim. Sent as text together with the commit. The
-- server chooses the plans of handlers, but must not plan this while the table is empty, and scan all of it once it is
-- full.
-- Index: primary key of oncebox_entry.
-- Lock order: the row of oncebox_entry.
SET LOCAL enable_seqscan = off;
EXECUTE finish_oncebox(:now, :lane, :handler, :seq, :token, ':claim_id')
