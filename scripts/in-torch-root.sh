#!/bin/sh
# Runs a command with the programs and libraries of a Debian root made by torch-root.sh.
#
#   scripts/in-torch-root.sh SUITE|DIR CMD [ARG...]      for example: forky /usr/bin/python3 train.py
#
# The script mounts the root's /usr and /etc over those of the machine in a new mount namespace (/bin, /lib and /sbin
# are links into /usr). Everything else stays the same: the working folder, /tmp, /home, /proc, /dev. No mount
# remains. Every step is an exec, so CMD has the pid, the parent, the signals and the exit code of this script, and
# the script can be a worker's interpreter. Without root it needs unprivileged user namespaces.
#
# A file mounted at /etc/hosts (in a container, or on a test host) stays mounted, because it contains this host's name.
#
# The script sets USE_LIBUV=0 unless it is set: Debian builds torch without libuv, but torch uses libuv by default.
set -eu

[ $# -ge 2 ] || {
	echo "usage: $0 SUITE|DIR CMD [ARG...]" >&2
	exit 2
}
case $1 in
*/*) root=$1 ;;
*) root=${ELASTICRUN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/elasticrun}/roots/$1 ;;
esac
shift
[ -x "$root/usr/bin/python3" ] || {
	echo "in-torch-root.sh: no torch root at $root: make it with scripts/torch-root.sh" >&2
	exit 127
}
export USE_LIBUV="${USE_LIBUV-0}"
user=--map-root-user
[ "$(id -u)" -ne 0 ] || user=
# $user is one option or empty.
# shellcheck disable=SC2016,SC2086
exec unshare --mount $user -- /bin/sh -eu -c '
	root=$1
	shift
	! mountpoint -q /etc/hosts || mount --bind /etc/hosts "$root/etc/hosts"
	mount --rbind "$root/etc" /etc
	mount --bind "$root/usr" /usr
	exec "$@"' sh "$root" "$@"
