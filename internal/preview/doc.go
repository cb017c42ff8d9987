// Package preview describes what a launch would do, for elasticrun explain and --dry-run. It starts nothing.
//
//	Build      reads the configuration and the machine, probes the endpoint, and returns a Plan   (build.go)
//	assemble   makes the Plan from what was read; a pure function                                 (assemble.go)
//	Probe      finds out what listens at the endpoint; the only part that connects to anything    (probe.go)
//	Refusal    why a launch would be refused at the endpoint                                      (refusal.go)
//	Plan       the result, with Text for people and JSON for programs                             (plan.go, text.go)
//
// What only a rendezvous decides, such as the ranks of a job on several nodes, is not guessed. assemble prepares the
// workers of two hypothetical rounds that differ in everything still unknown, and shows only what is equal in both.
//
// The functions may be called from any goroutine. Build may replace a host name in the configuration by an address.
package preview
