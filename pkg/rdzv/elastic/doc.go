// Package elastic is the rendezvous of jobs whose nodes come, leave and die. It runs one algorithm over any
// coordination store (package coord), for one node as for thousands.
//
//	agent ◀─Handler─ rounds.Member ◀─driver─▶ coord.Store ◀─leaderDriver─▶ rounds.Leader
//
// Package rounds decides; this package carries out. [Handler] is the agent's side: it implements [rdzv.Handler], and a
// driver connects its member to the store. A leaderDriver connects a leader to the store. [Access] provides the store:
// [C10d] one that an agent or a process of its own hosts, or that several agents keep together, [Elected] one outside
// of the agents, who elect their leader. [Leaders] leads all runs of a store that is a process of its own. Package
// founding decides which agent begins a store that several keep together.
//
// Commands need [New], [Options], [C10d], [Elected], [Leaders], [Observe], [Close] and [Identify]. Explain, doctor and
// the store also use the functions about addresses ([Resolve], [HostChoice], [Offers]), ports and markers.
//
// The package does not start or stop workers, and knows nothing of what they do: that is the job of package agent.
//
// A Handler's methods may be called as package rdzv says. One goroutine drives the member and another one drives the
// leader; calls are passed to their goroutine.
//
// docs/design/rendezvous.md says why the algorithm is safe.
package elastic
