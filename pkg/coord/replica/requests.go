package replica

import (
	"encoding/binary"
	"errors"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"
)

// Ticket names a request of this replica's caller. A replica never uses a ticket twice.
type Ticket uint64

// Result is the outcome of the request with that ticket.
type Result struct {
	Ticket Ticket
	Err    error // nil if the request succeeded
}

// Errors of requests. After ErrUnknown the request may have happened or may still happen. After any other error it has
// certainly not happened.
var (
	ErrNotLeading = errors.New("replica: this replica does not lead")
	ErrBusy       = errors.New("replica: too much is pending")
	ErrTooLarge   = errors.New("replica: the write is too large")
	ErrMembers    = errors.New("replica: the group cannot have these members")
	ErrUnknown    = errors.New("replica: this replica stopped leading before it learned the outcome")
)

// request is a ticket and the index of its entry in the log of this replica, which leads.
type request struct {
	ticket Ticket
	index  uint64
}

// requests holds the caller's pending requests.
type requests struct {
	issued   Ticket
	settled  []Result
	writes   []request // in the order of indexes
	change   request   // the change of members; ticket 0 if none is pending
	confirms []Ticket  // in order
	// asked is the latest ticket of confirms that was passed to raft. confirmed is the latest one that a majority has
	// answered.
	asked, confirmed Ticket
	reads            uint64 // how many reads raft has sent to the others in this term
}

func (q *requests) issue() Ticket {
	q.issued++
	return q.issued
}

func (q *requests) settle(t Ticket, err error) {
	q.settled = append(q.settled, Result{Ticket: t, Err: err})
}

// mayLead returns an error unless the replica leads.
func (r *Replica) mayLead() error {
	if r.failed != nil {
		return r.failed
	}
	if !r.leading() {
		return ErrNotLeading
	}
	return nil
}

// Write sets and deletes keys, all or none. The ticket is settled without an error once a majority has the write and
// this replica has applied it. If Write itself returns an error, the write will not happen.
func (r *Replica) Write(edits []Edit) (Ticket, error) {
	if err := r.mayLead(); err != nil {
		return 0, err
	}
	data := appendEdits(nil, slices.Values(edits))
	if len(data) > r.cfg.MaxWrite {
		return 0, ErrTooLarge
	}
	at := r.log.last() + 1 // drain has left no entry in raft that the log lacks
	if err := r.node.Propose(data); err != nil {
		return 0, ErrBusy
	}
	t := r.issue()
	r.writes = append(r.writes, request{ticket: t, index: at})
	r.drain()
	return t, nil
}

// Confirm asks the other voters whether this replica still leads. The ticket is settled without an error once a
// majority has answered a question that was sent after the call. Then the contents at the time of the call, and the
// contents now, include every write that any leader acknowledged before the call. Calls before an Output share their
// messages.
func (r *Replica) Confirm() (Ticket, error) {
	if err := r.mayLead(); err != nil {
		return 0, err
	}
	t := r.issue()
	r.confirms = append(r.confirms, t)
	return t, nil
}

// requestConfirm makes raft ask the other voters, if it has not yet asked for the latest Confirm.
func (r *Replica) requestConfirm() {
	if len(r.confirms) == 0 || r.confirms[len(r.confirms)-1] <= r.asked {
		return
	}
	r.asked = r.confirms[len(r.confirms)-1]
	if !r.isAlone() {
		r.reads++ // raft answers an only voter at once and does not count that read
	}
	r.node.ReadIndex(binary.LittleEndian.AppendUint64(nil, uint64(r.asked)))
	r.drain()
}

// settleConfirms settles the confirms that a majority has answered. The replica has applied everything that is
// committed. A replica that has stopped leading has no confirms.
func (r *Replica) settleConfirms() {
	for len(r.confirms) > 0 && r.confirms[0] <= r.confirmed {
		r.settle(r.confirms[0], nil)
		r.confirms = r.confirms[1:]
	}
}

// settleApplied settles the requests whose entry is e, which has just been applied.
func (r *Replica) settleApplied(e *pb.Entry) {
	if len(r.writes) > 0 && r.writes[0].index == e.GetIndex() {
		r.settle(r.writes[0].ticket, nil)
		r.writes = r.writes[1:]
	}
	if r.change.ticket == 0 || e.GetIndex() < r.change.index || e.GetType() == pb.EntryNormal || r.isJoint() {
		return
	}
	r.settle(r.change.ticket, nil)
	r.change = request{}
}

// settleAll settles all pending requests, because the replica no longer leads.
func (r *Replica) settleAll() {
	for _, w := range r.writes {
		r.settle(w.ticket, ErrUnknown)
	}
	if r.change.ticket != 0 {
		r.settle(r.change.ticket, ErrUnknown)
	}
	for _, t := range r.confirms {
		r.settle(t, ErrNotLeading)
	}
	r.writes, r.change, r.confirms = nil, request{}, nil
}
