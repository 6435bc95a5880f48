-- Begins a handler's transaction, and marks it as ours for as long as it lasts: nothing keeps a handler from ending it.
BEGIN;
SET LOCAL oncebox.handler = 'on'
