-- A wake-up that is lost with the server is no loss.
SET :scope synchronous_commit = off;
SET :scope client_min_messages = error;
SET :scope statement_timeout = ':patience';
