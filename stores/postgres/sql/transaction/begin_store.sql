-- Whatever the server's default is: our statements look at what others have committed.
BEGIN ISOLATION LEVEL READ COMMITTED
