package liveness

import (
	"slices"
	"time"
)

// sign is a kind of sign of life. If one sample shows several kinds, the first in this order names the sample.
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
	exitSign // the worker has exited
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

// rate is how much a counter must grow to count as a sign: per second on average, and in total.
type rate struct {
	perSecond float64
	least     uint64
}

var (
	// enoughBytes is above what idle threads read and write, such as event files, queues between processes and the
	// sockets of monitors.
	enoughBytes = rate{64 << 10, 64 << 10}
	// enoughFaults is above what the allocator of an idle process causes, and far below what a copy into new memory
	// causes.
	enoughFaults = rate{16, 64}
	// enoughCPU is a share of a core, in ticks. A program below a worker that uses more is taken to do the worker's
	// work.
	enoughCPU = rate{0.10 * ticksPerSecond, 1}
)

// reached reports whether a counter has grown enough in the time in. A counter that shrank belongs to another process.
func (r rate) reached(last, now uint64, in time.Duration) bool {
	if now < last || in <= 0 {
		return false
	}
	grown := now - last
	return grown >= r.least && float64(grown) >= r.perSecond*in.Seconds()
}

// ring holds the most recent distinct stacks.
type ring struct {
	size   int
	hashes []uint64 // the most recently seen is last
}

// add records a stack and reports whether the ring did not hold it yet.
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
