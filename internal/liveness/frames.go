package liveness

import (
	"path"
	"slices"
	"strings"

	"github.com/elasticrun/elasticrun/pkg/pystack"
)

// innermost is how many of the innermost frames show what a thread waits for. Only a few standard library calls lie
// between the loop of a debugger or server and the system call.
const innermost = 6

// debugger returns the debugger at whose prompt a thread waits; empty for none.
func debugger(frames []pystack.Frame) string {
	for _, f := range frames[:min(innermost, len(frames))] {
		switch base := path.Base(f.File); {
		case inStandardLibrary(f.File) && slices.Contains([]string{"pdb.py", "bdb.py", "cmd.py", "code.py"}, base):
			return strings.TrimSuffix(base, ".py")
		case strings.Contains(f.File, "/IPython/"):
			return "IPython"
		case strings.Contains(f.File, "/debugpy/"), strings.Contains(f.File, "/pydevd"), strings.Contains(f.File, "/_pydevd"):
			return "debugpy"
		}
	}
	return ""
}

// inStandardLibrary reports whether a file is one of Python's own, such as /usr/lib/python3.11/pdb.py.
func inStandardLibrary(file string) bool {
	return strings.Contains(file, "/python3") && !strings.Contains(file, "-packages/") ||
		strings.HasPrefix(file, "<frozen ")
}

// serves reports whether a thread is in a server loop or an event loop of the standard library. A thread that waits for
// a process of its own, such as a data loader, does not serve, even if it uses a selector.
func serves(frames []pystack.Frame) bool {
	frames = frames[:min(innermost, len(frames))]
	return !slices.ContainsFunc(frames, awaitsProcess) && slices.ContainsFunc(frames, func(f pystack.Frame) bool {
		if !inStandardLibrary(f.File) {
			return false
		}
		return slices.Contains([]string{"selectors.py", "socketserver.py", "<frozen selectors>"}, path.Base(f.File)) ||
			strings.Contains(f.File, "/asyncio/") || strings.HasSuffix(f.File, "/http/server.py")
	})
}

// delegates reports whether a thread waits for another thread or process to do its work: in a join, or for a pool or a
// program.
func delegates(frames []pystack.Frame) bool {
	return slices.ContainsFunc(frames[:min(innermost, len(frames))], func(f pystack.Frame) bool {
		if strings.HasSuffix(f.File, "/torch/multiprocessing/spawn.py") {
			return true
		}
		function := f.Function[strings.LastIndexByte(f.Function, '.')+1:]
		dir, base := path.Split(f.File)
		switch {
		case !inStandardLibrary(f.File):
			return false
		case strings.HasSuffix(dir, "/concurrent/futures/"), base == "subprocess.py":
			return true
		case strings.HasSuffix(dir, "/multiprocessing/"):
			return base == "pool.py" || base == "process.py" && function == "join"
		}
		return base == "threading.py" && (function == "join" || function == "_shutdown")
	})
}

// awaitsProcess reports whether a call waits for another process or for data from that process.
func awaitsProcess(f pystack.Frame) bool {
	if strings.Contains(f.File, "/torch/utils/data/") {
		return true
	}
	dir, base := path.Split(f.File)
	switch {
	case !inStandardLibrary(f.File):
		return false
	case strings.HasSuffix(dir, "/multiprocessing/"):
		return slices.Contains([]string{"connection.py", "queues.py", "pool.py"}, base) || strings.HasPrefix(base, "popen_")
	}
	return base == "subprocess.py" && !strings.HasSuffix(dir, "/asyncio/")
}
