-- Returns true if this is still the transaction that the handler was given. Fails in an aborted one.
SELECT coalesce(current_setting('oncebox.handler', true) = 'on', false)
