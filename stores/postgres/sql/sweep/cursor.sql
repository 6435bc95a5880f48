-- How far sweeps have come with a window. $1 inbox, $2 the window, $3 all windows.
SELECT upto, behind FROM oncebox_sweep_cursor WHERE inbox = $1 AND span = $2 AND digest = $3
