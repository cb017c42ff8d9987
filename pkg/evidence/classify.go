package evidence

import (
	"bytes"
	"strings"
)

// peerErrors matches what gloo, NCCL and the store say in a process whose peer has gone.
var peerErrors = lazily(`(?i)(closed|reset) by (remote )?peer|connection (refused|was likely closed)|broken pipe|` +
	`nccl ?remote ?error|remote (error|process exited)|got 0 bytes|recvValue failed|` +
	`(socket|operation) timeout|client socket has timed out|wait timeout after|timed out after .* waiting for clients|` +
	`timed out waiting \d+ ?ms for|timeout caused pair closure|failed to pass monitoredBarrier|connectFullMesh failed|` +
	`collective operation timeout|watchdog.*(timeout|timed out)|DistStoreError|\bstore.*timed? ?out|` +
	`(No route to host|Network is unreachable|got completion (from peer|with status))`)

// PeerError reports whether a message only says that a peer is gone.
func PeerError(message string) bool { return peerErrors().MatchString(message) }

// interrupts are the exceptions by which Python reacts to a signal, or ends in order. They are no faults.
var interrupts = lazily(`^([\w.]*\.)?(KeyboardInterrupt|SystemExit|GeneratorExit|SignalException)\b`)

// Interrupted reports whether a message, "<Type>: <text>", tells of a reaction to a signal.
func Interrupted(message string) bool { return interrupts().MatchString(message) }

var (
	gpuErrors  = lazily(`CUDA error|HIP error|(CUDA|HIP) out of memory|OutOfMemoryError|cuDNN error|CUDNN_STATUS_|CUBLAS_STATUS_|device-side assert`)
	ncclErrors = lazily(`NCCL error|RCCL error|nccl[A-Z]\w*(Error|Usage|Argument)|DistBackendError`)
)

// exceptionKind says what a Python exception is evidence of. more is what follows the first line of its message; false says
// that it is evidence of nothing.
func exceptionKind(message, more string) (Kind, bool) {
	switch {
	case Interrupted(message):
		return "", false
	case gpuErrors().MatchString(message):
		return CUDA, true
	case PeerError(message):
		return PeerLost, true
	case ncclErrors().MatchString(message):
		if PeerError(more) {
			return PeerLost, true
		}
		return NCCL, true
	case strings.Contains(more, "Original exception:") && PeerError(more):
		return PeerLost, true
	}
	return Exception, true
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
	// ownWords are from C++ code whose errors are about its peers: a log line of the user's own program is not.
	ownWords   = lazily(`what\(\)|gloo|\[c10d\]|ProcessGroup|NCCL WARN`)
	warning    = lazily(`\[[WI]\d{4} |\[[WI] \w+\.cpp|retrying`)
	ncclFault  = lazily(`NCCL WARN.*Cuda failure`)
	xidLine    = lazily(`NVRM: Xid \(`)
	gpuAssert  = lazily("block: \\[.*Assertion `")
	otherFatal = lazily(`Fatal Python error: (Aborted|Segmentation fault|Bus error|Illegal instruction|Floating)`)
)

// lineKind says what a line outside of a traceback is evidence of; false for nothing.
func lineKind(line []byte) (Kind, bool) {
	switch {
	case bytes.Contains(line, []byte("NCCL INFO")), bytes.Contains(line, []byte("NCCL TRACE")): // there may be floods of them
		return "", false
	case warning().Match(line):
		return "", false
	case xidLine().Match(line):
		return Xid, true
	case gpuAssert().Match(line), gpuErrors().Match(line), ncclFault().Match(line):
		return CUDA, true
	case bytes.Contains(line, []byte("Fatal Python error")):
		return Exception, !otherFatal().Match(line) // those are told by the signal, and may follow from a peer's end
	case !ownWords().Match(line):
		return "", false
	case peerErrors().Match(line):
		return PeerLost, true
	case bytes.Contains(line, []byte("NCCL WARN")): // most are harmless
		return "", false
	case ncclErrors().Match(line):
		return NCCL, true
	}
	return "", false
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
