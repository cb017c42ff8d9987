// Package elastic is the rendezvous of jobs whose nodes come, leave and die. It runs one algorithm over any
// coordination store (package coord), for one node as for thousands.
//
//	agent ◀─Handler─ member ◀─driver─▶ coord.Store ◀─leaderDriver─▶ leader
//
// Two state machines make all decisions, without clock, network or goroutine. The member decides what one agent may do
// and has to report (member.go). The leader decides who is in a round, in which order, and what the round's end costs
// (leader_form.go forms a round, leader_end.go ends it). Events and the time go in; reports, orders and writes come
// out. The simulation in this package's tests runs thousands of schedules of them and checks the invariants after each
// event.
//
// Commands need [New], [Options], [C10d], [Elected], [Leaders], [Observe], [Close] and [Identify]. Explain, doctor and
// the store also use the functions about addresses ([Resolve], [HostChoice], [Offers]), ports and markers. The records
// of the store and their parts are in records.go.
//
// [Handler] is the agent's side: it implements [rdzv.Handler] and drives a member. [Access] provides the store: [C10d]
// one that an agent or a process of its own hosts, [Elected] one outside of the agents, who elect their leader.
// [Leaders] leads all runs of a store that is a process of its own. records.go has the keys and values in the store.
//
// The package does not start or stop workers, and knows nothing of what they do: that is the job of package agent.
//
// A Handler's methods may be called as package rdzv says. One goroutine drives the member and another one drives the
// leader; member and leader are not safe for concurrent use, and calls are passed to their goroutine.
//
// docs/design/rendezvous.md says why the algorithm is safe.
package elastic
