-- Begins a handler's transaction, and marks it as the store's for as long as it lasts: a handler is able to end it.
BEGIN;
SET LOCAL oncebox.handler = 'on'
