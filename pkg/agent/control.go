package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// The words that a worker may write into its control file, one a line.
const (
	controlFinished    = "finished"     // all its work is done: after a preemption, it needs no further run
	controlStop        = "stop"         // if it fails, a restart does not help
	controlExcludeNode = "exclude-node" // if it fails, its node is at fault
)

// How much is read of a control file and of a heartbeat file, in bytes.
const (
	maxControl   = 4 << 10
	maxHeartbeat = 32
)

// control is what a worker has written into its control file.
type control struct{ finished, stop, excludeNode bool }

// controlFile returns the path of a worker's control file. Each round has files of its own.
func controlFile(dir string, round, localRank int) string {
	return filepath.Join(dir, fmt.Sprintf("%d.%d.control", round, localRank))
}

// readControl reads a control file, which may be missing. An error says what was ignored.
func readControl(path string) (c control, err error) {
	data, err := readSmall(path, maxControl+1)
	if err != nil {
		return control{}, err
	}
	if len(data) > maxControl {
		data = data[:bytes.LastIndexByte(data, '\n')+1]
		err = fmt.Errorf("%s is longer than %d bytes: the rest is ignored", path, maxControl)
	}
	for line := range strings.Lines(string(data)) {
		switch word := strings.TrimSpace(line); word {
		case controlFinished:
			c.finished = true
		case controlStop:
			c.stop = true
		case controlExcludeNode:
			c.excludeNode = true
		case "":
		default:
			err = fmt.Errorf("%s has %s, which is none of %s, %s and %s", path, strconv.Quote(word[:min(len(word), 40)]),
				controlFinished, controlStop, controlExcludeNode)
		}
	}
	return c, err
}

// readSmall reads the beginning of a file; a missing file is empty. It neither waits for a FIFO nor follows a link.
func readSmall(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// workerSummary is what this node's workers have reported in a round, through control files, exits and steps.
type workerSummary struct {
	finished    bool // every worker wrote "finished", or had exited with 0 before the round was halted
	stop        bool // any worker wrote "stop"
	excludeNode bool // any worker wrote "exclude-node"
	steps       rdzv.Steps
}

// summarizeWorkers returns the summary of the current round. All of its workers must have ended.
func (a *Agent) summarizeWorkers() workerSummary {
	exited := a.exitedBeforeRequest()
	s := workerSummary{finished: a.shown != nil}
	if a.steps != nil {
		s.steps = a.steps.update(time.Now())
		a.warnFell(s.steps)
	}
	for rank := range a.workers {
		c := a.readControlOf(rank)
		s.finished = s.finished && (a.done || exited[rank] || c.finished)
		s.stop, s.excludeNode = s.stop || c.stop, s.excludeNode || c.excludeNode
	}
	return s
}

// readControlOf reads the control file of a worker of the current round. It logs what it ignores.
func (a *Agent) readControlOf(localRank int) control {
	if a.opts.WorkerDir == "" {
		return control{}
	}
	c, err := readControl(controlFile(a.opts.WorkerDir, a.round.Number, localRank))
	if err != nil {
		a.log.Warn().Err(err).Int("rank", a.workers[localRank].GlobalRank).
			Msg("the control file of a worker is not understood")
	}
	return c
}
