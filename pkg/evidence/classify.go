package evidence

import (
	"bytes"
	"strings"

	"github.com/elasticrun/elasticrun/internal/lazyregexp"
	"github.com/elasticrun/elasticrun/pkg/failure"
)

var (
	// lostPhrases match messages that only torch.distributed, gloo, NCCL and UCC write: a peer is gone or does not answer.
	lostPhrases = lazyregexp.New(`(?i)nccl ?remote ?error|remote process exited or there was a network error|` +
		`failed to recv, got 0 bytes|recvValue failed|` +
		`the client socket has timed out|wait timeout after \d+ ?ms|timed out after .* waiting for clients|` +
		`timed out waiting \d+ ?ms for (recv|send) operation|timeout caused pair closure|failed to pass monitoredBarrier|` +
		`connectFullMesh failed|` +
		`collective (operation )?timeout|ProcessGroup\w+('s)? watchdog (hang|got stuck)|DistStoreError|` +
		`^(RuntimeError: )?(Socket Timeout|Connection (closed|reset) by peer|Broken pipe)$`)
	// networkWords match messages about any connection of any program. They are about a peer only if one of the libraries
	// above writes them.
	networkWords = lazyregexp.New(`(?i)(closed|reset) by (remote )?peer|connection (refused|was likely closed)|` +
		`broken pipe|remote error|remote process exited|got 0 bytes|` +
		`(socket|operation|wait) timeout|\bstore.*timeout|timed out|watchdog.*timeout|` +
		`No route to host|Network is unreachable|got completion (from peer|with status)`)
	// peerWords match the names of libraries that communicate with peers.
	peerWords = lazyregexp.New(`(?i:\bgloo\b|nccl|rccl|\bc10d\b|torch\.distributed\.|` +
		`\bDist(Store|Network|Backend)Error)|` +
		`ProcessGroup|\bUC[CXP]\b|\bucc_|monitoredBarrier`)
	// peerFrame matches a line of a traceback in the code of torch.distributed that communicates with peers.
	peerFrame = lazyregexp.New(`File "[^"]*[/\\]torch[/\\]distributed[/\\]([^"/\\]+\.py|` +
		`(rpc|nn|fsdp|tensor|_tensor|pipelining|algorithms|_composable|_symmetric_memory|device_mesh)[/\\])`)
	// ownNetwork matches exceptions of Python, and of libraries that fetch data, about the program's own connections. The
	// name of a library in their text, as in an address, does not make them errors of a peer.
	ownNetwork = lazyregexp.New(`^(Connection\w*Error|BrokenPipeError|OSError|IOError|EOFError|` +
		`(socket|ssl|http|urllib|urllib3|requests|aiohttp|httpx|httpcore|botocore|grpc|redis)\.)`)
	// waited matches the peer errors of workers that have waited in vain. Their peer may be alive.
	waited = lazyregexp.New(`(?i)time[ds]?[ -]?out|failed to pass monitoredBarrier|watchdog (hang|got stuck)`)
	// barrierWithCause matches what torch's monitoredBarrier says of every error in it, before it quotes the error.
	barrierWithCause = lazyregexp.New(`failed to pass monitoredBarrier in \d+ ms: `)
)

// peerError reports whether a message only says that a peer is gone or has not answered.
func peerError(message string) bool { return exception{text: message}.ofPeer() }

// ofPeer reports whether an exception is only about a peer.
func (e exception) ofPeer() bool {
	message := e.headline()
	if ncclErrors().MatchString(message) {
		message += e.more // the cause is in the lines that follow
	}
	return lostPhrases().MatchString(e.text) || networkWords().MatchString(message) &&
		(peerFrame().MatchString(e.frame) || peerWords().MatchString(message) && !ownNetwork().MatchString(e.text))
}

// IsWaiting reports whether a finding only says that the worker waited for a peer in vain. That peer may be alive.
func IsWaiting(f failure.Finding) bool {
	return f.Kind == failure.PeerLost && waited().MatchString(barrierWithCause().ReplaceAllString(f.Text, ""))
}

// interrupts matches the exceptions with which Python reacts to a signal or exits on purpose. They are no faults.
var interrupts = lazyregexp.New(`^([\w.]*\.)?(KeyboardInterrupt|SystemExit|GeneratorExit|SignalException)\b`)

// interrupted reports whether a message, "<Type>: <text>", is a reaction to a signal or an exit on purpose.
func interrupted(message string) bool { return interrupts().MatchString(message) }

var (
	gpuErrors = lazyregexp.New(`CUDA error|HIP error|(CUDA|HIP) out of memory|OutOfMemoryError|` +
		`cuDNN error|CUDNN_STATUS_|CUBLAS_STATUS_|device-side assert`)
	ncclErrors = lazyregexp.New(`NCCL error|RCCL error|nccl[A-Z]\w*(Error|Usage|Argument)|DistBackendError`)
)

// kind returns what a Python exception is evidence of; false for nothing.
func (e exception) kind() (failure.Kind, bool) {
	switch {
	case interrupted(e.text):
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

// notable are rare texts. A scan costs little because it examines a line outside a traceback only if it contains one.
var notable = [...][]byte{
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
	[]byte("panic: "),
	[]byte("fatal error: "),
	[]byte("'main'"), // a panic of Rust
}

const tracebackHeader = "Traceback (most recent call last):"

var (
	warning    = lazyregexp.New(`\[[WI]\d{4} |\[[WI] \w+\.cpp|retrying`)
	ncclFault  = lazyregexp.New(`NCCL WARN.*Cuda failure`)
	xidLine    = lazyregexp.New(`NVRM: Xid \(`)
	gpuAssert  = lazyregexp.New("block: \\[.*Assertion `")
	otherFatal = lazyregexp.New(`Fatal Python error: (Aborted|Segmentation fault|Bus error|Illegal instruction|Floating)`)
	// aborting matches what C, C++ and their libraries write before they abort; the groups match the reason.
	aborting = lazyregexp.New(`^ *(what\(\): .*)|(Assertion .* failed\b.*)|((?:Check|CHECK) failed: .*)|` +
		`^(terminate called (?:without|recursively).*|pure virtual method called|` +
		`(?:free|malloc|realloc|calloc|munmap_chunk|malloc_consolidate|unlink_chunk)\(\): .*|double free or corruption.*|` +
		`corrupted .*|\*\*\* .* \*\*\*: terminated|Fatal glibc error: .*)`)
	// goFatal matches how the runtime of Go begins its last message, before the stacks of all goroutines.
	goFatal = lazyregexp.New(`^(panic|fatal error): `)
	// rustPanic matches the first line of a panic that ends a program in Rust. The message is in the next line, except in
	// old versions, which have it in quotes in the same line.
	rustPanic = lazyregexp.New(`^thread 'main' (\(\d+\) )?panicked at ('?)`)
)

// lineKind returns what a line outside a traceback is evidence of; false for nothing.
func lineKind(line []byte) (failure.Kind, bool) {
	switch {
	case bytes.Contains(line, []byte("NCCL INFO")), bytes.Contains(line, []byte("NCCL TRACE")):
		// there may be many of them
		return "", false
	case warning().Match(line):
		return "", false
	case xidLine().Match(line):
		return failure.Xid, true
	case gpuAssert().Match(line), gpuErrors().Match(line), ncclFault().Match(line):
		return failure.CUDA, true
	case bytes.Contains(line, []byte("Fatal Python error")):
		// the signal identifies these, and they may follow from the end of a peer
		return failure.Exception, !otherFatal().Match(line)
	}
	text := string(line)
	peers := peerWords().MatchString(text)
	switch {
	case peers && peerError(text):
		return failure.PeerLost, true
	case bytes.Contains(line, []byte("NCCL WARN")): // most are harmless
		return "", false
	case peers && ncclErrors().Match(line):
		return failure.NCCL, true
	}
	if goFatal().MatchString(text) || rustPanic().MatchString(text) {
		return failure.Fatal, true
	}
	if reason, aborts := abortReason(text); aborts && !networkWords().MatchString(reason) { // it may be any connection
		return failure.Fatal, true
	}
	return "", false
}

// abortReason returns the reason for an abort in a line; false if there is none.
func abortReason(line string) (string, bool) {
	m := aborting().FindStringSubmatch(line)
	if m == nil {
		return "", false
	}
	return strings.TrimSpace(m[1] + m[2] + m[3] + m[4]), true
}

// maxText is how much of a line a finding keeps, in bytes.
const maxText = 400

// tidy returns s as one short printable line.
func tidy(s string) string { return shorten(s, maxText) }

// shorten returns s as one printable line of at most most bytes.
func shorten(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return '?'
		}
		return r
	}, strings.TrimSpace(strings.ToValidUTF8(strings.ReplaceAll(s, "\t", " "), "?")))
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most-3], "") + "..."
	}
	return s
}
