package rounds

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// failureReports keeps the last failure that each node of a round has reported. The last report counts, because a node
// knows more of a failure after it has stopped its workers than when it saw the first one exit. The zero value is
// empty.
type failureReports struct {
	byRank map[int]failureReport
	// anyFailed says that a worker has failed by itself. Workers that were told to stop may have caused a failure, but
	// do not make a round fail.
	anyFailed bool
}

// failureReport is a node's likeliest cause.
type failureReport struct {
	failure rdzv.Failure
	at      time.Duration // when it happened
}

// record keeps the failure that the node of that rank reports.
func (r *failureReports) record(now time.Duration, rank int, f rdzv.Failure) {
	report := failureReport{f, now - f.Age}
	if old, again := r.byRank[rank]; again && old.failure.PID == f.PID && old.failure.Grade == f.Grade {
		report.at = min(report.at, old.at) // a late report makes a failure look younger
	}
	put(&r.byRank, rank, report)
	r.anyFailed = r.anyFailed || !f.OnlyStopped
}

// dropSince forgets the failures at or after that time.
func (r *failureReports) dropSince(at time.Duration) {
	r.anyFailed = false
	for rank, report := range r.byRank {
		if report.at >= at {
			delete(r.byRank, rank)
			continue
		}
		r.anyFailed = r.anyFailed || !report.failure.OnlyStopped
	}
}

// final says why a restart cannot help; empty if it may. A worker that hangs in the kernel is one reason. Another is
// that the program cannot be executed. In the first round, a report of one node is enough for that. Later the program
// has been executed before, so all nodes must report it, not just a newcomer.
func (r *failureReports) final(firstRound bool, nodes int) string {
	final := 0
	for _, report := range r.byRank {
		if report.failure.NoRestart {
			return "a worker hangs in the kernel, and what it holds would be missing after a restart"
		}
		if report.failure.Final {
			final++
		}
	}
	if final > 0 && (firstRound || final == nodes) {
		return "the program cannot be executed; a restart would not help"
	}
	return ""
}

// compareReports orders causes, the likeliest first.
func compareReports(x, y failureReport) int {
	return cmp.Or(
		cmp.Compare(x.failure.Grade, y.failure.Grade),
		cmp.Compare(x.at, y.at),
		cmp.Compare(x.failure.GlobalRank, y.failure.GlobalRank))
}

// likeliest returns the rank of the node with the likeliest cause; false if no worker has failed by itself.
func (r *failureReports) likeliest() (rank int, failed bool) {
	rank = -1
	for other, report := range r.byRank {
		if rank < 0 || compareReports(report, r.byRank[rank]) < 0 {
			rank = other
		}
	}
	return rank, r.anyFailed && rank >= 0
}

// causes returns the likeliest cause, with its age as of now, and at most [rdzv.MaxOthers] causes of other nodes
// without their texts.
func (r *failureReports) causes(now time.Duration) (cause *rdzv.Failure, others []rdzv.Failure) {
	all := make([]failureReport, 0, len(r.byRank))
	for _, rank := range slices.Sorted(maps.Keys(r.byRank)) {
		all = append(all, r.byRank[rank])
	}
	slices.SortStableFunc(all, compareReports)
	absent := slices.IndexFunc(all, func(report failureReport) bool { return report.failure.Absent })
	if absent > 0 && waitedInVain(all) {
		root := all[absent]
		all = slices.Insert(slices.Delete(all, absent, absent+1), 0, root)
	}
	for i, report := range all[:min(len(all), 1+rdzv.MaxOthers)] {
		f := report.failure
		f.Age = now - report.at
		if i == 0 {
			cause = &f
			continue
		}
		f.Text = ""
		others = append(others, f)
	}
	return cause, others
}

// waitedInVain reports whether the likeliest of sorted reports is about a worker that waited in vain for an absent one,
// or that lost its connection to a worker which did. An absent worker's report has the time at which its own node's
// other workers gave up, or at which the stop began.
func waitedInVain(all []failureReport) bool {
	first := all[0]
	return first.failure.Waited || first.failure.Grade == failure.GradePeer &&
		slices.ContainsFunc(all, func(r failureReport) bool {
			return (r.failure.Waited || r.failure.Absent) && r.at-first.at <= failure.ReadDelay
		})
}
