package evidence

import "time"

// Kind says what sort of evidence a [Finding] is. It is written into reports as it stands here.
type Kind string

// The kinds.
const (
	OOMKilled     Kind = "oom_killed"     // the kernel's OOM killer took it
	Crashed       Kind = "crashed"        // SIGSEGV, SIGBUS, SIGILL, SIGFPE; SIGABRT after an error of its own
	Killed        Kind = "killed"         // by SIGKILL, which the launcher did not send
	Signalled     Kind = "signalled"      // by another signal, which the launcher did not send, or SIGABRT without a word of why
	ErrorFile     Kind = "error_file"     // it wrote an error file
	Exception     Kind = "exception"      // a Python traceback on stderr
	Fatal         Kind = "fatal"          // what C or C++ says on stderr before it aborts
	CUDA          Kind = "cuda_error"     // a CUDA or ROCm error on stderr
	Xid           Kind = "xid"            // the driver reported a fault of the GPU
	NCCL          Kind = "nccl_error"     // an NCCL error that does not speak of a peer
	NotExecutable Kind = "not_executable" // exit code 126, or it could not be executed
	NotFound      Kind = "not_found"      // exit code 127, or there is no such program
	Stuck         Kind = "stuck"          // it wrote an error file and did not end
	Exited        Kind = "exited"         // with a code that is not 0, and nothing else is known
	LeftEarly     Kind = "left_early"     // it exited with 0 while its peers were still communicating, which they said soon after
	Paused        Kind = "paused"         // a signal, or a debugger, had stopped it when its peers lost it
	Suspected     Kind = "suspected"      // an error of its own on stderr that it lived with for long, or a crash while it was being stopped
	PeerLost      Kind = "peer_lost"      // it only says that a peer is gone
	Absent        Kind = "absent"         // it was alive and silent, or had long exited with 0, when its peers had waited in vain
)

// Finding is one piece of evidence against a worker.
type Finding struct {
	Kind Kind `json:"kind"`
	// Time is when it happened by this machine's clock, as near as is known; zero where it is not.
	Time time.Time `json:"time,omitzero"`
	// Text is one line for people.
	Text string `json:"text"`
}

// Grades, strongest first. rdzv.Failure.Grade carries them to other nodes.
const (
	GradeCrash     = iota // the kernel or somebody outside ended it
	GradeOwnFault         // it failed by itself
	GradeGone             // its peers lost it, and it had neither failed nor lost a peer
	GradeSuspected        // it may have failed
	GradePeer             // it only reports that a peer is gone, or was waited for
)

// Grade is the weight of the evidence.
func (k Kind) Grade() int {
	switch k {
	case OOMKilled, Crashed, Killed:
		return GradeCrash
	case LeftEarly, Paused:
		return GradeGone
	case Suspected:
		return GradeSuspected
	case PeerLost, Absent:
		return GradePeer
	default:
		return GradeOwnFault
	}
}

// OnlyAsCause says that this is evidence only if nobody shows a fault of its own: it is told of the root cause, and of no other worker.
func (k Kind) OnlyAsCause() bool { return k == LeftEarly || k == Paused || k == Absent }

// Waited says that the worker only tells of having waited for a peer in vain: that may be alive.
func (f Finding) Waited() bool { return f.Kind == PeerLost && waited().MatchString(f.Text) }
