# Installs Debian packages ("$@") as root, without starting the services in them.
set -eu

# Asked before a service is started. One that is there already has its reasons.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 1' HUP INT TERM
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi

install() { DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "$@"; }

# Lists that are there may be old, and name packages that the mirror has replaced since.
if ! ls /var/lib/apt/lists/*_Packages* >/dev/null 2>&1; then
    apt-get update
    install "$@"
else
    install "$@" || { apt-get update && install "$@"; }
fi
