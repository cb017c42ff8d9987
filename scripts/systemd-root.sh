#!/usr/bin/env bash
# Makes a small Debian root with systemd, in which tests boot the service of the Debian package.
#
#   scripts/systemd-root.sh
#
# The root is ${ELASTICRUN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/elasticrun}/roots/systemd (half a minute, 200 MB). It
# is complete when it has the file .elasticrun, and is then kept. The script needs root and mmdebstrap. Packages come
# from the mirror of this machine's apt, or from ELASTICRUN_DEBIAN_MIRROR.
set -euo pipefail

root=${ELASTICRUN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/elasticrun}/roots/systemd

die() {
	echo "systemd-root.sh: $*" >&2
	exit 1
}

[[ $(id -u) -eq 0 ]] || die "needs root"
command -v mmdebstrap >/dev/null || die "mmdebstrap is missing: apt-get install mmdebstrap"
mkdir -p "${root%/*}"
exec 9>"${root%/*}/.lock-systemd"
flock 9
if [[ ! -e $root/.elasticrun ]]; then
	mirror=${ELASTICRUN_DEBIAN_MIRROR:-}
	if [[ -z $mirror ]]; then
		# shellcheck disable=SC2016 # $(REPO_URI) is for apt-get.
		mirror=$(apt-get indextargets --format '$(REPO_URI)' \
			'Identifier: Packages' 'Origin: Debian' 'Label: Debian' | sort | uniq -c | sort -rn | awk 'NR == 1 { print $2 }')
	fi
	[[ -n $mirror ]] || die "apt has no Debian mirror: run apt-get update, or set ELASTICRUN_DEBIAN_MIRROR"
	rm -rf --one-file-system "$root"
	mmdebstrap --quiet --variant=apt --include=systemd,systemd-sysv,dbus,python3-minimal \
		bookworm "$root" "deb $mirror bookworm main"
	touch "$root/.elasticrun"
fi
echo "$root"
