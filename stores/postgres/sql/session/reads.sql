-- Settings of sessions for operators. Hides the warning of a vacuum that finds the table locked. `:scope` is SESSION or
-- LOCAL.
SET :scope client_min_messages = error;
