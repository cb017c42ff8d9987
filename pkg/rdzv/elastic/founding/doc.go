// Package founding decides which agent begins the store of a job that its agents keep together, and which of two groups
// goes on when they meet.
//
// [State] is what one agent knows of such groups. It is pure: announcements, errors and the time go in; decisions come
// out. Package elastic has the network and the files, and the simulation of package rounds drives State as well.
//
// A State is not safe for concurrent use. docs/design/replication.md says why a job never has two stores.
package founding
