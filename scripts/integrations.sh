#!/usr/bin/env bash
# Installs the packages of docs/integrations.md, and runs examples/integrations with them.
#
#   scripts/integrations.sh              install
#   scripts/integrations.sh ELASTICRUN   install, and train two steps with each framework under this elasticrun
#
# The packages come from PyPI in the versions below (500 MB on disk, about a minute) and lie in venvs/integrations of
# ${ELASTICRUN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/elasticrun}. The environment uses the torch of venvs/torch, which
# scripts/torch-official.sh makes, and does not change it. DeepSpeed also needs g++ and Python's headers. The
# environment is complete when venvs/integrations/.elasticrun holds this recipe. pip takes its package index from its
# own settings.
set -euo pipefail

readonly packages=(
	accelerate==1.15.0
	debugpy==1.8.22
	deepspeed==0.19.8
	ipykernel==7.4.0
	jupyter-client==8.10.0
	lightning==2.6.6
	mypy==2.4.1
	torchft==0.2.0
	transformers==5.23.0
	uv==0.13.9
)
cache=${ELASTICRUN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/elasticrun}
dir=$cache/venvs/integrations
torch=$cache/venvs/torch

die() {
	echo "integrations.sh: $*" >&2
	exit 1
}

# install_packages makes the environment. A .pth file adds torch's environment to its path.
install_packages() {
	echo "integrations.sh: making $dir" >&2
	rm -rf --one-file-system "$dir"
	python3 -m venv "$dir" || die "python3 cannot make a virtual environment: apt-get install python3-venv"
	echo "import site, sys; site.addsitedir(sys.prefix + '/../torch/lib/python%d.%d/site-packages' % sys.version_info[:2])" \
		>"$(echo "$dir"/lib/python3.*/site-packages)/torch.pth"
	"$dir/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir "${packages[@]}" >&2 ||
		die "pip cannot install ${packages[*]}"
	[[ ! -e $(echo "$dir"/lib/python3.*/site-packages)/torch ]] || die "a package wants another torch than that of $torch"
}

# train runs the examples, torchft as two groups.
train() {
	local elasticrun=$1 examples script lighthouse first
	examples=$(dirname "$0")/../examples/integrations
	export PYTHON_EXEC=$dir/bin/python OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
	for script in accelerate deepspeed lightning transformers; do
		"$elasticrun" --nproc-per-node 2 "$examples/train_$script.py"
	done
	"$dir/bin/torchft_lighthouse" --bind '[::]:29510' --min_replicas 2 &
	lighthouse=$!
	# shellcheck disable=SC2064 # expands the pid now
	trap "kill $lighthouse" EXIT
	export TORCHFT_LIGHTHOUSE=http://localhost:29510
	REPLICA_GROUP_ID=0 "$elasticrun" "$examples/train_torchft.py" &
	first=$!
	REPLICA_GROUP_ID=1 "$elasticrun" "$examples/train_torchft.py"
	wait "$first"
}

[[ $# -le 1 ]] || die "takes one argument at most: the path of elasticrun"
[[ -e $torch/.elasticrun ]] || die "there is no torch in $torch: run scripts/torch-official.sh first"
exec 9>"$cache/venvs/.lock"
flock 9
if [[ $(cat "$dir/.elasticrun" 2>/dev/null) != "${packages[*]}" ]]; then
	install_packages
	echo "${packages[*]}" >"$dir/.elasticrun"
fi
exec 9>&-
echo "$dir/bin"
[[ $# -eq 0 ]] || train "$1"
