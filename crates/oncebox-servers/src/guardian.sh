# Ends a server and removes its directory ($1) when the process at the other end of standard input closes it or ends.
# Ctrl-C at the terminal is for that process, so the guardian ignores it, and a closed error output too.
trap '' HUP INT QUIT TERM PIPE
dir=$1
cat >/dev/null

# Servers are found by their working directory: a process number in a file may belong to another process by now.
ids() {
    find /proc/[0-9]*/cwd -maxdepth 0 \( -lname "$dir" -o -lname "$dir/*" \) 2>/dev/null | cut -d / -f 3
}

# True once nothing is left.
wait_gone() {
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
        [ -n "$(ids)" ] || return 0
        sleep 0.05
    done
    return 1
}

# PostgreSQL answers QUIT by ending at once without leaving shared memory behind; one that is suspended has to go on
# first to hear it.
left=$(ids)
if [ -n "$left" ]; then
    kill -s QUIT $left 2>/dev/null
    kill -s CONT $left 2>/dev/null
    for _ in 1 2 3 4; do
        wait_gone && break
        kill -s KILL $(ids) 2>/dev/null
    done
fi

# A postmaster that was killed could not release its segment, whose number is the last word of this line.
if [ -r "$dir/data/postmaster.pid" ]; then
    segment=$(sed -n 7p "$dir/data/postmaster.pid")
    [ -z "$segment" ] || ipcrm -m "${segment##* }" 2>/dev/null
fi

if mountpoint -q "$dir/data" 2>/dev/null; then
    umount "$dir/data" || umount -l "$dir/data"
fi
rm -rf "$dir"
