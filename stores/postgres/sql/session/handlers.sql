-- Settings of handlers' sessions. The server chooses their plans. `:scope` and `:local` are as in `store`.
SET :scope idle_in_transaction_session_timeout = ':handler_patience';
SELECT set_config('synchronous_commit', 'on', :local) WHERE current_setting('synchronous_commit') = 'off';
