// Package founding is for jobs whose agents keep the coordination store together, as a group. It decides which agent
// founds the group, and which of two groups survives when they meet.
//
// [State] holds one agent's knowledge of these groups. It is pure: announcements, errors and the time go in; decisions
// come out. Package elastic adds the network and the files. The simulation of package rounds drives State too.
//
// A State is not safe for concurrent use. docs/design/replication.md says why a job never has two stores.
package founding
