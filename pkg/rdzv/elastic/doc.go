// Package elastic is the rendezvous of jobs whose nodes come, go and die: one algorithm over any coordination store
// (package coord), for one node as for thousands.
//
//	agent ◀─Handler─ member ◀─driver─▶ coord.Store ◀─Lead─▶ leader
//
// Two state machines decide everything, without clock, network or goroutine: member (what one agent may do, and must tell) and leader (who is in a
// round, in which order, what its end costs). Events and the time go in; reports, orders and writes come out. The simulation in this package's tests
// runs them by the thousand.
//
// Around them: [Handler] is the agent's side of package rdzv's contract; it drives its member in one goroutine (session.go, driver.go), to which calls
// are passed. [Lead] drives a leader for as long as its term lasts (lead.go). [Access] is where the store comes from: [C10d], hosted by an agent or in a
// process of its own, where [Leaders] lead; or [Elected], outside of the agents, who elect their leader. identity.go, endpoint.go and listen.go find out
// which node this is and who hosts, ports.go at which of the endpoint's ports; notes.go says how a long wait stands; workerstore.go is where the workers meet.
//
// docs/architecture.md says why it is safe.
package elastic
