-- What `session/finish.sql` has prepared, for one claim. Sent as text, so that the commit can be sent with it. Handlers plan for
-- themselves, but this must not be planned while the table is empty, and read all of it when it is full.
SET LOCAL enable_seqscan = off;
EXECUTE finish_oncebox(:now, :lane, :handler, :seq, :token, ':claim_id')
