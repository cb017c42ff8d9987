// Package elastic is the rendezvous of jobs whose nodes come, leave and die. It runs one algorithm over any
// coordination store (package coord), for one node as for thousands.
//
//	agent ◀─Handler─ rounds.Member ◀─driver─▶ coord.Store ◀─leaderDriver─▶ rounds.Leader
//
// Package rounds decides; this package carries out. [Handler] is the agent's side: it implements [rdzv.Handler], and a
// driver connects its member to the store. A leaderDriver connects a leader to the store. [Access] provides the store:
// [C10d] one that an agent or a process of its own hosts, or that several agents keep together, [Elected] one outside
// of the agents, who elect their leader. [Leaders] leads all runs of a store that is a process of its own. Package
// founding decides which agent begins a store that several keep together. Package machine answers what a run asks about
// this machine, also for commands.
//
// Commands need [New], [Options], [C10d], [Elected], [Leaders], [Observe] and [Close]. The files by topic:
//
//	handler.go, lifetime.go, session.go, driver.go, barrier.go       the agent's side: its calls and its sessions
//	awaitsuccess.go, steps.go, waiting.go, waitreport.go, options.go
//	leader_driver.go, leader_read.go, leaders.go, clock.go           the leader's side
//	close.go, checkfinished.go                                       how a run is closed, and what a late agent finds
//	observe.go, status.go, askstacks.go, examine.go                  what observers and agents ask of other agents
//	access.go, host.go, hostplace.go, ports.go, morehosts.go,        C10d: the store of a job
//	local.go, dialer.go, attempts.go, sharedstore.go, storeusers.go
//	storemember*.go, storemoved.go, heirs.go, earliergroup.go,       a store that several agents keep together
//	fewvoters.go
//	elected.go                                                       Elected: a store outside of the agents
//	workerstore.go                                                   the worker store that a node offers
//
// The package does not start or stop workers, and knows nothing of what they do: that is the job of package agent.
//
// A Handler's methods may be called as package rdzv says. One goroutine drives the member and another one drives the
// leader; calls are passed to their goroutine.
//
// docs/design/rendezvous.md says why the algorithm is safe.
package elastic
