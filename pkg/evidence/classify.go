package evidence

import (
	"bytes"
	"strings"

	"github.com/elasticrun/elasticrun/pkg/failure"
)

var (
	// lostPhrases are what only torch.distributed, gloo, NCCL and UCC say in a process whose peer has gone, or does not answer.
	lostPhrases = lazily(`(?i)nccl ?remote ?error|remote process exited or there was a network error|failed to recv, got 0 bytes|recvValue failed|` +
		`the client socket has timed out|wait timeout after \d+ ?ms|timed out after .* waiting for clients|` +
		`timed out waiting \d+ ?ms for (recv|send) operation|timeout caused pair closure|failed to pass monitoredBarrier|connectFullMesh failed|` +
		`collective (operation )?timeout|ProcessGroup\w+('s)? watchdog (hang|got stuck)|DistStoreError|` +
		`^(RuntimeError: )?(Socket Timeout|Connection (closed|reset) by peer|Broken pipe)$`)
	// networkWords are what any program says of any connection. They tell of a peer only in the mouth of those above.
	networkWords = lazily(`(?i)(closed|reset) by (remote )?peer|connection (refused|was likely closed)|broken pipe|remote error|remote process exited|got 0 bytes|` +
		`(socket|operation|wait) timeout|\bstore.*timeout|timed out|watchdog.*timeout|` +
		`No route to host|Network is unreachable|got completion (from peer|with status)`)
	// peerWords are names of those who talk with peers.
	peerWords = lazily(`(?i:\bgloo\b|nccl|rccl|\bc10d\b|torch\.distributed\.|\bDist(Store|Network|Backend)Error)|ProcessGroup|\bUC[CXP]\b|\bucc_|monitoredBarrier`)
	// peerFrame is a line of a traceback that is of torch.distributed's own code, where that talks with peers.
	peerFrame = lazily(`File "[^"]*[/\\]torch[/\\]distributed[/\\]([^"/\\]+\.py|(rpc|nn|fsdp|tensor|_tensor|pipelining|algorithms|_composable|_symmetric_memory|device_mesh)[/\\])`)
	// ownNetwork are the exceptions of Python, and of libraries that fetch data, for connections of the program's own. A name in their
	// text, as in an address, makes them nothing else.
	ownNetwork = lazily(`^(Connection\w*Error|BrokenPipeError|OSError|IOError|EOFError|(socket|ssl|http|urllib|urllib3|requests|aiohttp|httpx|httpcore|botocore|grpc|redis)\.)`)
	// waited are the peer errors of those who have waited in vain: their peer may be alive.
	waited = lazily(`(?i)time[ds]?[ -]?out|failed to pass monitoredBarrier|watchdog (hang|got stuck)`)
)

// PeerError reports whether a message only says that a peer is gone, or has not answered.
func PeerError(message string) bool { return exception{text: message}.ofPeer() }

// ofPeer says whether an exception only tells of a peer.
func (e exception) ofPeer() bool {
	said := e.headline()
	if ncclErrors().MatchString(said) || strings.Contains(e.more, "Original exception:") { // the rest of the message has it
		said += e.more
	}
	return lostPhrases().MatchString(e.text) || networkWords().MatchString(said) &&
		(peerFrame().MatchString(e.frame) || peerWords().MatchString(said) && !ownNetwork().MatchString(e.text))
}

// Waited reports whether a finding only says that the worker waited for a peer in vain. That peer may be alive.
func Waited(f failure.Finding) bool {
	return f.Kind == failure.PeerLost && waited().MatchString(f.Text)
}

// interrupts are the exceptions by which Python reacts to a signal, or ends in order. They are no faults.
var interrupts = lazily(`^([\w.]*\.)?(KeyboardInterrupt|SystemExit|GeneratorExit|SignalException)\b`)

// Interrupted reports whether a message, "<Type>: <text>", tells of a reaction to a signal.
func Interrupted(message string) bool { return interrupts().MatchString(message) }

var (
	gpuErrors  = lazily(`CUDA error|HIP error|(CUDA|HIP) out of memory|OutOfMemoryError|cuDNN error|CUDNN_STATUS_|CUBLAS_STATUS_|device-side assert`)
	ncclErrors = lazily(`NCCL error|RCCL error|nccl[A-Z]\w*(Error|Usage|Argument)|DistBackendError`)
)

// kind says what a Python exception is evidence of; false says of nothing.
func (e exception) kind() (failure.Kind, bool) {
	switch {
	case Interrupted(e.text):
		return "", false
	case gpuErrors().MatchString(e.text):
		return failure.CUDA, true
	case e.ofPeer():
		return failure.PeerLost, true
	case ncclErrors().MatchString(e.text):
		return failure.NCCL, true
	}
	return failure.Exception, true
}

// A line outside of a traceback is looked at only if it has one of these. All start with a byte that is rare in logs, so that a
// search for them all costs little.
var notable = [][]byte{
	[]byte(tracebackHeader),
	[]byte("Exception ignored"),
	[]byte("CUDA"),
	[]byte("HIP"),
	[]byte("NCCL"),
	[]byte("NVRM: Xid "),
	[]byte("Fatal Python error"),
	[]byte("Assertion `"),
	[]byte("Connection "),
	[]byte("Broken pipe"),
}

const tracebackHeader = "Traceback (most recent call last):"

var (
	warning    = lazily(`\[[WI]\d{4} |\[[WI] \w+\.cpp|retrying`)
	ncclFault  = lazily(`NCCL WARN.*Cuda failure`)
	xidLine    = lazily(`NVRM: Xid \(`)
	gpuAssert  = lazily("block: \\[.*Assertion `")
	otherFatal = lazily(`Fatal Python error: (Aborted|Segmentation fault|Bus error|Illegal instruction|Floating)`)
	// aborting is what C, C++ and their libraries say before they abort; the group is what they say of why.
	aborting = lazily(`^ *(what\(\): .*)|(Assertion .* failed\b.*)|((?:Check|CHECK) failed: .*)|^(terminate called (?:without|recursively).*|pure virtual method called|` +
		`(?:free|malloc|realloc|calloc|munmap_chunk|malloc_consolidate|unlink_chunk)\(\): .*|double free or corruption.*|corrupted .*|\*\*\* .* \*\*\*: terminated|Fatal glibc error: .*)`)
)

// lineKind says what a line outside of a traceback is evidence of; false for nothing.
func lineKind(line []byte) (failure.Kind, bool) {
	switch {
	case bytes.Contains(line, []byte("NCCL INFO")), bytes.Contains(line, []byte("NCCL TRACE")): // there may be floods of them
		return "", false
	case warning().Match(line):
		return "", false
	case xidLine().Match(line):
		return failure.Xid, true
	case gpuAssert().Match(line), gpuErrors().Match(line), ncclFault().Match(line):
		return failure.CUDA, true
	case bytes.Contains(line, []byte("Fatal Python error")):
		return failure.Exception, !otherFatal().Match(line) // those are told by the signal, and may follow from a peer's end
	}
	text := string(line)
	peers := peerWords().MatchString(text)
	switch {
	case peers && PeerError(text):
		return failure.PeerLost, true
	case bytes.Contains(line, []byte("NCCL WARN")): // most are harmless
		return "", false
	case peers && ncclErrors().Match(line):
		return failure.NCCL, true
	}
	if reason, aborts := abortReason(text); aborts && !networkWords().MatchString(reason) { // of whose connection nobody knows
		return failure.Fatal, true
	}
	return "", false
}

// abortReason finds in a line what a program says before it aborts; false where it says nothing.
func abortReason(line string) (string, bool) {
	m := aborting().FindStringSubmatch(line)
	if m == nil {
		return "", false
	}
	return strings.TrimSpace(m[1] + m[2] + m[3] + m[4]), true
}

// maxText is how much of a line a Finding keeps, in bytes.
const maxText = 400

// tidy makes one short printable line.
func tidy(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return '?'
		}
		return r
	}, strings.TrimSpace(strings.ToValidUTF8(strings.ReplaceAll(s, "\t", " "), "?")))
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText-3], "") + "..."
	}
	return s
}
