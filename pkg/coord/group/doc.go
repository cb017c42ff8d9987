// Package group keeps one coordination store (package coord) in several processes, so that it survives the loss of any
// of them. The processes are the members of the store's group.
//
//	clients ──▶ Member ─▶ coord.Server ─▶ keeper ─▶ replica.Replica ─▶ peers ──▶ other members
//
// One member leads at a time. It runs the [coord.Server]; the keeper writes the server's changes to the replicas of all
// members, and nothing leaves the server before a majority has it. When the leader is lost, another one is elected; its
// server continues from its replica, and clients resume their sessions there. Members that do not lead refuse clients
// with coord.ReasonElsewhere.
//
// One, three or five members vote. The leader asks candidates, processes that have a Member and are in no group yet, to
// join, and replaces voters that are silent or leave. Nothing is on disk: a process that was restarted joins as a new
// member.
//
//	plan.go       what the leader does next to have as many voters as are wanted; pure
//	member.go     Member: its options, and the goroutine that owns the replica
//	conns.go      the connections of clients and of other members
//	lead.go       the server while this member leads, and the one that refuses clients while it does not
//	manage.go     carries out what plan decides
//	candidates.go the processes that may become members
//	takeover.go   how a learner goes on in place of an only voter whose process has ended
//	status.go     what a member says of the group
//	paths.go      which voters reach each other, and which of them another one should replace; pure
//	pathcheck.go  how the leader asks voters for the paths between them
//	keeper.go     hands the server's changes to the replica
//	peers.go      connections to other members, one for each direction
//	leave.go      how a member leaves, and how one that was removed learns of it
//	announce.go   how the leader announces the group to processes that may have another one
//	dissolve.go   how the leader ends the group
//	snapshots.go  snapshots, each with a connection of its own
//	frames.go     what connections of members carry
//	reading.go    limits on the frames that are being read
//
// The package decides neither who may found a group nor who is a candidate: that is for its caller. All methods of a
// Member are safe for concurrent use. One goroutine owns the replica; the others ask it.
package group
