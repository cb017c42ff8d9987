#!/bin/sh
# Trains on the digits twice with a parameter server and 3 trainers: once undisturbed, once with a trainer killed. Both
# runs must end with the same loss.
#
#     run.sh ELASTICRUN
#
# The script builds the example in a temporary folder.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
if [ $# -ne 1 ]; then
	echo "usage: $0 ELASTICRUN" >&2
	exit 2
fi
elasticrun=$1
command -v "$elasticrun" >/dev/null || {
	echo "$0: $elasticrun is not a program; build it first" >&2
	exit 2
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

go build -C "$here" -o "$tmp/paramserver" .

# train RUN [OPTION...] starts 4 workers with the checkpoint folder of RUN.
train() {
	run=$1
	shift
	"$elasticrun" --nproc-per-node 4 --max-restarts 1 --no-python "$tmp/paramserver" \
		--data "$here/../../testdata/digits/digits.csv.gz" --checkpoint-dir "$tmp/$run" "$@"
}

# result RUN FIELD prints a field of the result.txt of a run.
result() {
	sed -n "s/^$2 //p" "$tmp/$1/result.txt"
}

echo "== 1 of 2: an undisturbed run, for comparison"
if ! train undisturbed >"$tmp/log" 2>&1; then
	cat "$tmp/log" >&2
	echo "the undisturbed run failed" >&2
	exit 1
fi
grep '^final loss' "$tmp/log"

echo
echo "== 2 of 2: a run whose trainer 2 is killed in step 35, after the checkpoint of step 30"
if ! train interrupted --kill-at 35 --kill-rank 2; then
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
echo "The killed trainer changed nothing: both runs end with the same loss."
