// Package replica replicates the contents of a coordination store among a few processes, of which one leads. It is the
// consensus of [go.etcd.io/raft/v3] with fixed rules, without a clock, a network, a disk, goroutines or randomness of
// its own. Package group is its only user.
//
// A [Replica] holds buckets of keys and values. Its caller passes time with [Replica.Tick] and the others' messages
// with [Replica.Step], and sends what [Replica.Output] returns. Messages may be lost, late, repeated and in any order.
//
// # Parts
//
//	replica.go   the replica, its time and elections, and the loop that does what raft asks for
//	requests.go  Write, Confirm and their tickets
//	members.go   Change, TransferTo
//	takeover.go  how a learner goes on in place of an only voter that has ended
//	status.go    what a leader knows of the others
//	message.go   messages and their checks
//	contents.go  buckets of keys, edits and snapshots
//	log.go       entries in memory
//
// # Rules
//
//   - Everything is in memory. A process that ends has forgotten its votes and entries, so its replica never comes
//     back: the next one has a new, higher id and joins by [Replica.Change]. If a majority of voters ends, the group
//     has ended.
//   - One replica founds a group. All others get their first state from a leader's snapshot.
//   - A leader reports [Role].Leading only after it has applied an entry of its own term, and so all that was committed
//     before.
//   - An answer that depends on the contents needs a [Replica.Confirm] that began after the question came. A leader
//     that is cut off does not know yet that there is another one.
//   - Members change by joint consensus only, one change at a time.
//   - Raft panics on inconsistent messages. Decode and Step check for what raft does not, and return [ErrMessage].
package replica
