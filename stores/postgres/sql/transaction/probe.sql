-- Whether this is still the transaction that the handler was given. An error in one that was aborted.
SELECT coalesce(current_setting('oncebox.handler', true) = 'on', false)
