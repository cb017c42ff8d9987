#!/usr/bin/env bash
# Runs the tests that are too slow for every change. `make soak` calls this script.
#
#   scripts/soak.sh SCALE [GO-TEST-FLAG...]      SCALE: 1 for the whole run, 0.1 for a tenth
#
#   1. every test, with ELASTICRUN_SOAK=SCALE, which multiplies repetitions such as kills and restarts
#   2. property tests, 20,000 random cases each at scale 1, and simulated jobs and replicas, all without the race detector
#   3. each fuzz target, 2 minutes at scale 1; failing inputs stay in testdata/fuzz and make later tests fail
# shellcheck disable=SC2016 # awk programs and patterns are in single quotes
set -euo pipefail
cd "$(dirname "$0")/.."

scale=${1:?give a scale, 1 for the whole run}
shift
[[ $scale =~ ^[0-9]*\.?[0-9]+$ ]] || {
	echo "soak.sh: scale $scale: must be a number such as 1 or 0.1" >&2
	exit 2
}

# scaled N MIN prints N times the scale, rounded down, but at least MIN.
scaled() {
	awk -v n="$1" -v min="$2" -v s="$scale" 'BEGIN { x = int(n * s); print (x > min ? x : min) }'
}

step() {
	printf '\n== soak: %s\n' "$*"
}

# tests_of AWK prints a line for each package in which the awk program finds tests: the package, its folder, and the
# tests' names as a -run pattern.
tests_of() {
	go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' ./... | while read -r package dir; do
		names=$(awk "$1" "$dir"/*_test.go | sort -u | paste -sd '|')
		if [[ -n $names ]]; then
			echo "$package $dir $names"
		fi
	done
}

# fuzz PACKAGE DIR TARGET runs a fuzz target of $tmp/fuzz.test, the package's tests. The inputs that it finds stay in
# go's cache. Go sometimes reports the end of the time as a failure without a failing input. fuzz does not count that as
# a failure.
fuzz() {
	local log=$tmp/log
	if (cd "$2" && "$tmp/fuzz.test" -test.run '^$' -test.fuzz "^$3\$" -test.fuzztime "${seconds}s" \
		-test.fuzzcachedir "$(go env GOCACHE)/fuzz/$1") </dev/null >"$log" 2>&1; then
		echo "ok  	$1 $3"
	elif grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input written to' "$log"; then
		echo "ok  	$1 $3 (time limit)"
	else
		cat "$log"
		return 1
	fi
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# The flags are those of make test, so that both share compiled packages.
limit=$(scaled 120 25)m # of one package, which shows where it hangs
step "every test, repeated at scale $scale"
ELASTICRUN_SOAK=$scale GORACE=atexit_sleep_ms=10 go test "$@" -trimpath -buildvcs=false -vet=off -count=1 -timeout "$limit" ./...

checks=$(scaled 20000 200)
step "property tests, $checks cases each, and simulated jobs"
tests_of '/"pgregory\.net\/rapid"|\/storetest"/ { rapid = 1 } # storetest imports rapid
	/^func Test/ { name = $2; sub(/\(.*/, "", name) }
	/rapid\.Check\(|storetest\.Conform\(t, / { found[name] }
	END { if (rapid) for (name in found) print name }' >"$tmp/tests"
packages=() names=
while read -r package _ found; do
	packages+=("$package")
	names+=${names:+|}$found
done <"$tmp/tests"
CGO_ENABLED=0 go test -trimpath -buildvcs=false -vet=off -count=1 -timeout "$limit" -run "^($names)\$" "${packages[@]}" \
	-rapid.checks "$checks"
ELASTICRUN_SOAK=$scale CGO_ENABLED=0 go test -trimpath -buildvcs=false -vet=off -count=1 -timeout "$limit" \
	-run '^Test(Simulation|Linearizable)' ./pkg/rdzv/elastic/rounds ./pkg/coord/replica ./pkg/coord/group

seconds=$(scaled 120 2)
step "fuzz targets, $seconds s each"
tests_of '/^func Fuzz/ { name = $2; sub(/\(.*/, "", name); print name }' | while read -r package dir names; do
	go test -c -fuzz . -o "$tmp/fuzz.test" "$package"
	for name in ${names//|/ }; do
		fuzz "$package" "$dir" "$name"
	done
done
