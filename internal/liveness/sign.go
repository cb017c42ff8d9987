package liveness

import (
	"slices"
	"time"
)

// sign is a kind of sign of life. Where one sample shows several, the first in this order names them.
type sign uint8

const (
	noSign sign = iota
	stepSign
	heartbeatSign
	outputSign
	bytesSign
	faultsSign
	childSign
	framesSign
	exitSign // the worker has ended
	signKinds
)

func (s sign) String() string {
	return [signKinds]string{"", "step", "heartbeat", "output", "bytes", "faults", "child", "frames", "exit"}[s]
}

// signSet is a set of kinds.
type signSet uint16

func (s *signSet) add(kind sign) { *s |= 1 << kind }

func (s *signSet) remove(kind sign) { *s &^= 1 << kind }

func (s signSet) has(kind sign) bool { return s&(1<<kind) != 0 }

// first returns the kind that names the set; noSign for an empty one.
func (s signSet) first() sign {
	for kind := noSign + 1; kind < signKinds; kind++ {
		if s.has(kind) {
			return kind
		}
	}
	return noSign
}

// rate is how much a counter must grow to count: per second on average, and in all.
type rate struct {
	perSecond float64
	least     uint64
}

var (
	// enoughBytes is above what idle threads read and write: event files, queues between processes, sockets of
	// monitors.
	enoughBytes = rate{64 << 10, 64 << 10}
	// enoughFaults is above what the allocator of an idle process causes, and far below what a copy into new memory
	// does.
	enoughFaults = rate{16, 64}
	// enoughCPU is the share of a core, in ticks, above which another program below a worker does its work for it.
	enoughCPU = rate{0.10 * ticksPerSecond, 1}
)

// reached reports whether a counter has grown enough in that time. A smaller counter is another process's.
func (r rate) reached(last, now uint64, in time.Duration) bool {
	if now < last || in <= 0 {
		return false
	}
	grown := now - last
	return grown >= r.least && float64(grown) >= r.perSecond*in.Seconds()
}

// ring holds the last distinct stacks.
type ring struct {
	size   int
	hashes []uint64 // the one that was seen last is the last one
}

// add records a stack and reports whether it was not among the last ones.
func (r *ring) add(hash uint64) (unseen bool) {
	if at := slices.Index(r.hashes, hash); at >= 0 {
		r.hashes = slices.Delete(r.hashes, at, at+1)
	} else {
		unseen = true
	}
	if len(r.hashes) == r.size {
		r.hashes = slices.Delete(r.hashes, 0, 1)
	}
	r.hashes = append(r.hashes, hash)
	return unseen
}
