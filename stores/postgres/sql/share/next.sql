RELEASE SAVEPOINT oncebox_run;
SAVEPOINT oncebox_run
