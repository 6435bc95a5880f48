-- A wake-up that is lost with the server is no loss.
SET synchronous_commit = off;
SET client_min_messages = error;
SET statement_timeout = ':patience';
