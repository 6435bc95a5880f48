-- Keeps the part of the last run, and ends the savepoints that its handler left open.
RELEASE oncebox_run
