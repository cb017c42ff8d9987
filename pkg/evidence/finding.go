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
	CUDA          Kind = "cuda_error"     // a CUDA or ROCm error on stderr
	Xid           Kind = "xid"            // the driver reported a fault of the GPU
	NCCL          Kind = "nccl_error"     // an NCCL error that does not speak of a peer
	NotExecutable Kind = "not_executable" // exit code 126, or it could not be executed
	NotFound      Kind = "not_found"      // exit code 127, or there is no such program
	Stuck         Kind = "stuck"          // it wrote an error file and did not end
	Exited        Kind = "exited"         // with a code that is not 0, and nothing else is known
	Suspected     Kind = "suspected"      // an error of its own on stderr that it lived with for long, or a crash while it was being stopped
	PeerLost      Kind = "peer_lost"      // it only says that a peer is gone
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
	GradeSuspected        // it may have
	GradePeer             // it only reports that a peer is gone
)

// Grade is the weight of the evidence.
func (k Kind) Grade() int {
	switch k {
	case OOMKilled, Crashed, Killed:
		return GradeCrash
	case Suspected:
		return GradeSuspected
	case PeerLost:
		return GradePeer
	default:
		return GradeOwnFault
	}
}
