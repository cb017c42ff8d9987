#!/usr/bin/env bash
# Installs py-spy, whose stacks the tests of pkg/pystack compare with.
#
#   scripts/py-spy.sh
#
# The program comes from PyPI in the version below (3 MB, some seconds) and lies in bin/py-spy of
# ${ELASTICRUN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/elasticrun}. A second call does nothing. pip takes its package
# index from its own settings.
set -euo pipefail

readonly version=0.4.3
cache=${ELASTICRUN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/elasticrun}
program=$cache/bin/py-spy

die() {
	echo "py-spy.sh: $*" >&2
	exit 1
}

# install_program copies the program out of a temporary virtual environment, because it needs nothing else from there.
# The rename replaces the whole file at once, because tests may run it.
install_program() {
	local dir
	dir=$(mktemp -d)
	# shellcheck disable=SC2064 # expands the name now
	trap "rm -rf --one-file-system '$dir'" EXIT
	python3 -m venv "$dir" || die "python3 cannot make a virtual environment: apt-get install python3-venv"
	"$dir/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir "py-spy==$version" >&2 ||
		die "pip cannot install py-spy $version"
	install -m 0755 "$dir/bin/py-spy" "$program.next"
	mv "$program.next" "$program"
}

[[ $# -eq 0 ]] || die "takes no arguments"
command -v python3 >/dev/null || die "python3 is missing"
mkdir -p "$cache/bin"
exec 9>"$cache/bin/.lock"
flock 9
if [[ $("$program" --version 2>/dev/null) != "py-spy $version" ]]; then
	install_program
fi
echo "$program"
