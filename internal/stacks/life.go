package stacks

import "time"

// Activity says what a worker's main thread does, seen from outside for about a second.
type Activity string

// The activities.
const (
	Held     Activity = "held"     // by a debugger, or it waits for a person at a terminal
	Unknown  Activity = "unknown"  // the worker could not be read, or not in time
	Moving   Activity = "moving"   // the worker makes progress
	Stopped  Activity = "stopped"  // by a signal
	Blocked  Activity = "blocked"  // the main thread sleeps, and nothing has woken it
	Disk     Activity = "disk"     // the main thread waits for a disk or a device all the time
	Idle     Activity = "idle"     // the main thread is a server that waits for requests
	Spinning Activity = "spinning" // the main thread uses CPU time, and is in the same few places all the time
	Polling  Activity = "polling"  // the main thread wakes up now and then, in the same few places
)

// Exited is the State of a worker whose process has ended with code 0.
const Exited = "exited"

// Life is what a worker's agent has seen of it from outside: its last sign of life, and the rest if it was watched
// closely.
type Life struct {
	// Activity is empty if the worker was not watched closely.
	Activity Activity `json:"activity,omitempty"`
	// Quiet is the time since the worker's last sign of life, in seconds. Sign is that sign: "output", "step 120",
	// "heartbeat", "bytes", "faults", "child", "frames", or "ran" if the main thread ran while another worker of the
	// node showed a sign, so that nobody read where it was; "" if it has shown none.
	Quiet float64 `json:"quiet"`
	Sign  string  `json:"sign,omitempty"`
	// Step is the last step that the worker reported; nil if it has reported none.
	Step     *int64 `json:"step,omitempty"`
	LastLine string `json:"last_line,omitempty"`
	Held     string `json:"held,omitempty"` // why the activity is Held
	// SinceOutput is the time since the last output of the worker or of a process below it, in seconds, whether it was a
	// sign of life or not.
	SinceOutput float64 `json:"silent,omitempty"`
	// Stacks is the number of different stacks of the main thread during the look.
	Stacks int `json:"stacks,omitempty"`
	// StuckChild is a descendant that cannot run, such as "pid 123 (python3) is stopped".
	StuckChild string `json:"stuck_child,omitempty"`
	// Switches counts the context switches of the main thread so far, Output the bytes of output. CPU is the CPU time of
	// the worker and its descendants so far, in seconds, and Share how much of a core they used during the look.
	Switches uint64  `json:"switches,omitempty"`
	Output   int64   `json:"output,omitempty"`
	CPU      float64 `json:"cpu,omitempty"`
	Share    float64 `json:"share,omitempty"`
	// ChildCPU is the part of CPU that processes other than the worker's Python process have used.
	ChildCPU float64 `json:"child_cpu,omitempty"`
	// Received counts the bytes that the TCP sockets of the worker and its descendants have received so far.
	Received uint64 `json:"received,omitempty"`
	// BusyChild is a descendant that is at work, such as "pid 124 (cc1) uses CPU time".
	BusyChild string `json:"busy_child,omitempty"`
}

// SinceSign returns Quiet, the time since the last sign of life, as a duration.
func (l *Life) SinceSign() time.Duration { return time.Duration(l.Quiet * float64(time.Second)) }
