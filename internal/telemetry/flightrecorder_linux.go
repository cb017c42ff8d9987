package telemetry

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// recorderPipeEnv is the prefix of the named pipes at which NCCL's flight recorder waits for requests to write its
// dump. Rank 3 has PREFIX3.pipe (torch 2.14, torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, DumpPipe).
const recorderPipeEnv = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"

// orderDumps requests dumps from the flight recorders of this node's workers, if the user has configured the pipes. It
// does not block, and it skips pipes without a reader and files that are not pipes.
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
