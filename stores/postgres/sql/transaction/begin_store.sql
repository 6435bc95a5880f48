-- Begins a transaction whose statements see what others committed, whatever the server's default is.
BEGIN ISOLATION LEVEL READ COMMITTED
