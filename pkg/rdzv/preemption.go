package rdzv

import (
	"syscall"
	"time"
)

// Preemption ends the whole job because its nodes are about to be taken away. The launcher of any one node receives a
// signal that says so, and the workers of all nodes are to save their state.
type Preemption struct {
	// Signal is the signal that the launcher has received. The workers get the same.
	Signal syscall.Signal `json:"signal"`
	// By says for people who has received it, and from whom.
	By string `json:"by"`
	// Grace is how long workers may take to save and to exit by themselves. It starts when their agent learns of the
	// preemption. The rendezvous sets it.
	Grace time.Duration `json:"grace,omitempty"`
	// Left is how long it takes until the node that has received the signal is taken away; 0 if that is not known.
	Left time.Duration `json:"left,omitempty"`
}

// SignalSpread is how much earlier than the launcher the workers may receive a signal that is sent to all processes of
// a node. An exit or a failure follows from the signal unless it is older than that.
const SignalSpread = time.Second
