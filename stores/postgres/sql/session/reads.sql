-- A vacuum that another one has the lock for says so, and that is no news.
SET :scope client_min_messages = error;
