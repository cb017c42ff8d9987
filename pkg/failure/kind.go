package failure

import "time"

// Kind is the kind of a [Finding]. Reports contain it verbatim.
type Kind string

// The kinds.
const (
	OOMKilled Kind = "oom_killed" // the kernel's OOM killer ended it
	Crashed   Kind = "crashed"    // SIGSEGV, SIGBUS, SIGILL, SIGFPE; SIGABRT after an error of its own
	Killed    Kind = "killed"     // SIGKILL that the launcher did not send
	// another signal that the launcher did not send; SIGABRT without a reason on stderr
	Signaled      Kind = "signalled"
	ErrorFile     Kind = "error_file"     // it wrote an error file
	Exception     Kind = "exception"      // a Python traceback on stderr
	Fatal         Kind = "fatal"          // a message of C, C++, Go or Rust on stderr before it gives up
	CUDA          Kind = "cuda_error"     // a CUDA or ROCm error on stderr
	Xid           Kind = "xid"            // the driver reported a fault of the GPU
	NCCL          Kind = "nccl_error"     // an NCCL error that does not mention a peer
	NotExecutable Kind = "not_executable" // exit code 126, or the program could not be executed
	NotFound      Kind = "not_found"      // exit code 127, or the program does not exist
	Hang          Kind = "hang"           // the job made no progress, and this worker is the likeliest reason
	// it was in an uninterruptible sleep in the kernel for too long
	Uninterruptible Kind = "uninterruptible"
	Stuck           Kind = "stuck"         // it wrote an error file and did not end
	TimerExpired    Kind = "timer_expired" // a timer that it had set for itself expired, and it was signaled
	Exited          Kind = "exited"        // an exit code other than 0, and no other evidence
	// it exited with 0 while its peers, as they reported soon after, still communicated
	LeftEarly Kind = "left_early"
	Paused    Kind = "paused"    // a signal or a debugger had stopped it when its peers lost it
	Suspected Kind = "suspected" // an error on stderr long before its end, or a crash during the stop
	PeerLost  Kind = "peer_lost" // it only reports that a peer is gone
	// it was alive and silent, or had long exited with 0, when its peers gave up waiting
	Absent Kind = "absent"
)

// Finding is one piece of evidence against a worker.
type Finding struct {
	Kind Kind
	// Time is when it happened by this machine's clock, as precisely as is known; zero if unknown.
	Time time.Time
	// Text is one line for people.
	Text string
}

// ReadDelay is how much later than it was written a line of a worker may be read on a busy machine. So a worker that
// lost its connection to one that gave up may seem to have failed first.
const ReadDelay = time.Second

// The grades, strongest first. Nodes send them to each other.
const (
	GradeCrash     = iota // the kernel, or somebody outside the job, ended it, or it made the job hang
	GradeOwnFault         // it failed by itself
	GradeGone             // its peers lost it, and it had neither failed nor lost a peer
	GradeSuspected        // it may have failed
	GradePeer             // it only reports that a peer is gone, or its peers waited for it
)

// Grade returns the weight of the evidence: the lower the grade, the likelier the worker is the root cause.
func (k Kind) Grade() int {
	switch k {
	case OOMKilled, Crashed, Killed, Hang:
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

// OnlyAsCause reports whether the kind counts only for the root cause, and for no other worker: it is evidence only if
// no worker shows a fault of its own.
func (k Kind) OnlyAsCause() bool { return k == LeftEarly || k == Paused || k == Absent }
