#!/usr/bin/env bash
# Makes a virtual environment with the newest official build of torch, for tests that compare with torch.
#
#   scripts/torch-official.sh
#
# It installs the wheel that `pip install torch` installs, which has libuv and NCCL, unlike Debian's torch: 3 GB to
# download, 5.3 GB on disk, and a few minutes. Everything lies outside the checkout, in
# ${ELASTICRUN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/elasticrun}:
#   venvs/torch          the virtual environment; it is complete when venvs/torch/.elasticrun holds this recipe's number
#   bin/python-official  its interpreter (for PYTHON_EXEC)
# A complete environment is kept: remove the folder to get a newer torch. An incomplete one is kept if its torchrun
# works, and else made again. The script needs python3 with venv. pip takes its package index from its own settings.
set -euo pipefail

readonly recipe=1
cache=${ELASTICRUN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/elasticrun}
dir=$cache/venvs/torch

die() {
	echo "torch-official.sh: $*" >&2
	exit 1
}

# install_torch makes the environment.
install_torch() {
	echo "torch-official.sh: making $dir (some minutes, 3 GB to download, 5.3 GB on disk)" >&2
	rm -rf --one-file-system "$dir"
	python3 -m venv "$dir" || die "python3 cannot make a virtual environment: apt-get install python3-venv"
	"$dir/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir torch numpy >&2 ||
		die "pip cannot install torch"
}

# check_torchrun checks that torchrun starts two workers that communicate, with a store that uses libuv.
check_torchrun() {
	local script
	script=$(mktemp)
	cat >"$script" <<-'PY'
		import torch
		import torch.distributed as dist

		assert dist.is_nccl_available()
		dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=True)
		dist.init_process_group("gloo")
		ranks = torch.tensor([dist.get_rank()])
		dist.all_reduce(ranks)
		assert ranks.item() == 1, ranks
		dist.destroy_process_group()
	PY
	local code=0
	OMP_NUM_THREADS=1 timeout 120 "$dir/bin/python" -m torch.distributed.run \
		--nnodes 1 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:0 "$script" >&2 || code=$?
	rm -f "$script"
	return "$code"
}

[[ $# -eq 0 ]] || die "takes no arguments"
command -v python3 >/dev/null || die "python3 is missing"
mkdir -p "$cache/venvs" "$cache/bin"
exec 9>"$cache/venvs/.lock"
flock 9
if [[ $(cat "$dir/.elasticrun" 2>/dev/null) != "$recipe" ]]; then
	if [[ ! -x $dir/bin/python ]] || ! check_torchrun; then
		install_torch
		check_torchrun || die "torchrun does not work in $dir"
	fi
	echo "$recipe" >"$dir/.elasticrun"
fi
# The path is relative, so that the cache can be mounted elsewhere.
# shellcheck disable=SC2016 # ${0%/*} is for the interpreter.
printf '#!/bin/sh\nexec "${0%%/*}/../venvs/torch/bin/python" "$@"\n' >"$cache/bin/python-official"
chmod 0755 "$cache/bin/python-official"
echo "$cache/bin/python-official"
