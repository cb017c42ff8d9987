// Package rounds decides the rounds of a job: the members of a round and their ranks, when a round ends, and whether
// another one follows. It also accounts for how the workers' time was used.
//
// It has two state machines. The [Leader] decides for the whole run. The [Member] decides what one agent may do and
// what it must report. Both are pure: observations and the time go in; writes, reports and orders come out. They have
// no clock, network, file or goroutine, which internal/archtest checks. Package elastic drives them.
//
//	agent's calls ──▶ Member ──Report──▶ store ──▶ Leader ──Record, Answer──▶ store ──▶ Member ──Order──▶ agent
//
// The files by topic:
//
//	keys.go, records.go, job.go, record_codec.go, storeaddrs.go   the keys and values in the store
//	leader.go                                                    the leader's states and its decision loop
//	leader_form.go, ranks.go, missing.go, newcomer.go, fresh.go  how a round is formed
//	leader_end.go, failures.go, leader_policy.go, policy.go,     how a round ends, and what follows
//	budget.go, quarantine.go, unreached.go, leader_hang.go
//	leader_preempt.go, leader_close.go, departures.go,           how the run ends
//	successes.go, finished.go, rerun.go
//	takeover.go                                                  what a later leader takes over
//	notices.go                                                   what waiting nodes learn
//	member*.go, outage.go, stops.go                              the agent's side
//	ledger.go, leader_ledger.go, member_ledger.go                how the workers' time was used
//
// Times are durations on a monotonic clock with any origin, one for each Leader and Member. A Leader or Member is not
// safe for concurrent use.
//
// The simulation in this package's tests runs thousands of schedules with faults and checks the invariants after each
// event. docs/design/rendezvous.md says why the algorithm is safe.
package rounds
