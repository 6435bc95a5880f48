-- Settings of sessions that notify. A crash of the server may lose wake-ups. `:scope` is SESSION or LOCAL.
SET :scope synchronous_commit = off;
SET :scope client_min_messages = error;
SET :scope statement_timeout = ':patience';
