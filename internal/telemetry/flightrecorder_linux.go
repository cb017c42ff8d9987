package telemetry

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// recorderPipeEnv is the prefix of the named pipes at which NCCL's flight recorder waits for orders to write its dump:
// rank 3 has PREFIX3.pipe (torch 2.14, torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, DumpPipe).
const recorderPipeEnv = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"

// orderDumps asks the flight recorders of the workers of this node for their dumps, if the user has named pipes for
// that. It does not block: a pipe without a reader, and what is no pipe, is left alone.
func (t *Telemetry) orderDumps() {
	prefix := os.Getenv(recorderPipeEnv)
	if prefix == "" {
		return
	}
	for _, w := range t.tracker.Snapshot().Workers {
		if err := orderDump(prefix + strconv.Itoa(w.Rank) + ".pipe"); err != nil {
			t.log.Warn().Err(err).Int("rank", w.Rank).Msg("the flight recorder cannot be asked for its dump")
		}
	}
}

// orderDump writes to a named pipe.
func orderDump(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err == nil && info.Mode()&os.ModeNamedPipe == 0 {
		err = fmt.Errorf("%s is not a named pipe", path)
	}
	if err == nil {
		_, err = f.WriteString("1\n")
	}
	return err
}
