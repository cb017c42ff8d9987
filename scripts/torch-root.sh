#!/usr/bin/env bash
# Makes Debian roots with a real torch, for tests that compare with torch or start torch workers.
#
#   scripts/torch-root.sh SUITE...      SUITE: forky (torch 2.14) or trixie (torch 2.6)
#
# The roots live in ${ELASTICRUN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/elasticrun}, outside the checkout:
#   roots/SUITE        the root; it is complete when roots/SUITE/.elasticrun holds this recipe's number
#   bin/python-X.Y     an interpreter that imports torch X.Y from the root (for PYTHON_EXEC)
# A complete root is kept, and an incomplete one is made again. The script needs root and mmdebstrap. Packages come
# from the mirror of this machine's apt, or from ELASTICRUN_DEBIAN_MIRROR.
set -euo pipefail

readonly recipe=2
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
cache=${ELASTICRUN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/elasticrun}

die() {
	echo "torch-root.sh: $*" >&2
	exit 1
}

# mirror prints the URL of apt's mirror for Debian packages.
mirror() {
	local uri=${ELASTICRUN_DEBIAN_MIRROR:-}
	if [[ -z $uri ]]; then
		# shellcheck disable=SC2016 # $(REPO_URI) is for apt-get.
		uri=$(apt-get indextargets --format '$(REPO_URI)' \
			'Identifier: Packages' 'Origin: Debian' 'Label: Debian' | sort | uniq -c | sort -rn | awk 'NR == 1 { print $2 }')
	fi
	[[ -n $uri ]] || die "apt has no Debian mirror: run apt-get update, or set ELASTICRUN_DEBIAN_MIRROR"
	printf '%s\n' "$uri"
}

# bootstrap SUITE DIR installs the suite into DIR. An unreleased suite may have an expired Release file. This machine
# may lack the suite's keyring, but Debian's current keys sign it.
bootstrap() {
	local suite=$1 dir=$2 options='' extra=()
	if [[ $suite == forky ]]; then
		options='[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] '
		extra=(--aptopt='Acquire::Check-Valid-Until "false"')
	fi
	mmdebstrap --quiet --variant=apt --include=ca-certificates,python3-torch,procps,iproute2 "${extra[@]}" \
		"$suite" "$dir" "deb $options$(mirror) $suite main"
}

# name_host DIR adds this machine's name to the root's hosts file. Without it torchrun --standalone waits for minutes.
name_host() {
	local hosts=$1/etc/hosts
	grep -qwF -- "$(hostname)" "$hosts" 2>/dev/null || printf '127.0.0.1 localhost %s\n' "$(hostname)" >>"$hosts"
}

# patch_torch DIR adds use_libuv=False to torch's calls of TCPStore. Debian's torch is built without libuv, and
# USE_LIBUV=0 has no effect on the stores of torchrun's agent and on a worker's client of an agent's store.
patch_torch() {
	"$here/in-torch-root.sh" "$1" /usr/bin/python3 - <<-'PY'
		import ast, importlib.util, pathlib, sys

		torch = pathlib.Path(importlib.util.find_spec("torch").origin).parent
		patched = 0
		for path in [torch / "distributed/rendezvous.py", *(torch / "distributed/elastic/rendezvous").glob("*.py")]:
		    text = path.read_bytes()
		    starts = [0]  # where each line starts, in bytes, as ast counts columns
		    for line in text.splitlines(keepends=True):
		        starts.append(starts[-1] + len(line))
		    ends = []  # where the last argument of each call ends
		    for node in ast.walk(ast.parse(text)):
		        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("TCPStore", "dist.TCPStore"):
		            if "use_libuv" not in [k.arg for k in node.keywords]:
		                last = max(node.args + [k.value for k in node.keywords], key=lambda a: (a.end_lineno, a.end_col_offset))
		                ends.append(starts[last.end_lineno - 1] + last.end_col_offset)
		    for end in sorted(ends, reverse=True):
		        text = text[:end] + b", use_libuv=False" + text[end:]
		    path.write_bytes(text)
		    patched += len(ends)
		sys.exit(0 if patched else "torch-root.sh: found no store to patch")
	PY
}

# check_torchrun DIR checks that the patched torchrun starts two workers that communicate.
check_torchrun() {
	local script=$1/tmp/sum.py
	cat >"$script" <<-'PY'
		import torch
		import torch.distributed as dist

		dist.init_process_group("gloo")
		ranks = torch.tensor([dist.get_rank()])
		dist.all_reduce(ranks)
		assert ranks.item() == 1, ranks
		dist.destroy_process_group()
	PY
	TMPDIR=$1/tmp OMP_NUM_THREADS=1 timeout 120 "$here/in-torch-root.sh" "$1" \
		/usr/bin/torchrun --standalone --nproc-per-node 2 "$script" >&2 || die "torchrun does not work in $1"
}

# make_root SUITE makes the root and its interpreter unless they exist, and prints the path of the interpreter.
make_root() {
	local suite=$1 dir=$cache/roots/$1 version
	if [[ $(cat "$dir/.elasticrun" 2>/dev/null) != "$recipe" ]]; then
		echo "torch-root.sh: making $dir (about a minute, 1.4 GB)" >&2
		rm -rf --one-file-system "$dir"
		bootstrap "$suite" "$dir"
		name_host "$dir"
		patch_torch "$dir"
		check_torchrun "$dir"
		echo "$recipe" >"$dir/.elasticrun"
	fi
	name_host "$dir"
	version=$(sed -nE "s/^__version__ = '([0-9]+\.[0-9]+).*/\1/p" "$dir/usr/lib/python3/dist-packages/torch/version.py")
	[[ -n $version ]] || die "no version of torch found in $dir"
	install -D -m 0755 "$here/in-torch-root.sh" "$cache/bin/in-torch-root"
	# The paths are relative, so that the cache can be mounted elsewhere.
	# shellcheck disable=SC2016 # ${0%/*} is for the interpreter.
	printf '#!/bin/sh\nexec "${0%%/*}/in-torch-root" "${0%%/*}/../roots/%s" /usr/bin/python3 "$@"\n' \
		"$suite" >"$cache/bin/python-$version"
	chmod 0755 "$cache/bin/python-$version"
	echo "$cache/bin/python-$version"
}

[[ $# -gt 0 ]] || die "give a suite: forky (torch 2.14) or trixie (torch 2.6)"
[[ $(id -u) -eq 0 ]] || die "needs root"
command -v mmdebstrap >/dev/null || die "mmdebstrap is missing: apt-get install mmdebstrap"
mkdir -p "$cache/roots" "$cache/bin"
exec 9>"$cache/roots/.lock"
flock 9
for suite in "$@"; do
	case $suite in
	forky | trixie) make_root "$suite" ;;
	*) die "unknown suite $suite: forky (torch 2.14) or trixie (torch 2.6)" ;;
	esac
done
