#!/bin/sh
# Trains on the digits twice with 4 workers: once undisturbed, once with a worker killed. Both runs must end with the
# same loss.
#
#     run.sh ELASTICRUN [SCRIPT]
#
# SCRIPT is a script with the arguments of train.py, such as examples/ddp.py. The default is train.py in this folder.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 1 ] || [ $# -gt 2 ]; then
	echo "usage: $0 ELASTICRUN [SCRIPT]" >&2
	exit 2
fi
elasticrun=$1
script=${2:-$here/train.py}
command -v "$elasticrun" >/dev/null || {
	echo "$0: $elasticrun is not a program; build it first" >&2
	exit 2
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# result RUN FIELD prints a field of the result.txt of a run.
result() {
	sed -n "s/^$2 //p" "$tmp/$1/result.txt"
}

echo "== 1 of 2: an undisturbed run, for comparison"
if ! "$elasticrun" --nproc-per-node 4 "$script" --checkpoint-dir "$tmp/undisturbed" >"$tmp/log" 2>&1; then
	cat "$tmp/log" >&2
	echo "the undisturbed run failed" >&2
	exit 1
fi
grep '^final loss' "$tmp/log"

echo
echo "== 2 of 2: a run whose worker 2 is killed in step 35, after the checkpoint of step 30"
if ! "$elasticrun" --nproc-per-node 4 --max-restarts 1 "$script" --checkpoint-dir "$tmp/interrupted" \
	--kill-at 35 --kill-rank 2; then
	echo "the interrupted run failed" >&2
	exit 1
fi

echo
printf '%-12s %-20s %-10s %s\n' run "final loss" accuracy restarts
for run in undisturbed interrupted; do
	printf '%-12s %-20s %-10s %s\n' "$run" "$(result $run loss)" "$(result $run accuracy)" "$(result $run restarts)"
done

if [ "$(result interrupted restarts)" != 1 ]; then
	echo "WRONG: the second run must be restarted once" >&2
	exit 1
fi
if [ "$(result undisturbed loss)" != "$(result interrupted loss)" ]; then
	echo "WRONG: the runs end with different losses" >&2
	exit 1
fi
echo "The killed worker changed nothing: both runs end with the same loss."
