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
	controlFinished    = "finished"     // it has done all its work: a preemption does not make the run one to be continued
	controlStop        = "stop"         // if it fails, a restart would not help
	controlExcludeNode = "exclude-node" // if it fails, its node is at fault
)

// maxControl is how much of a control file is read, in bytes, and maxStep of a heartbeat file.
const (
	maxControl = 4 << 10
	maxStep    = 32
)

// control is what a worker has written into its control file.
type control struct{ finished, stop, excludeNode bool }

// controlFile returns the path of a worker's control file. Each round has files of its own.
func controlFile(dir string, round, localRank int) string {
	return filepath.Join(dir, fmt.Sprintf("%d.%d.control", round, localRank))
}

// readControl reads a control file. There need not be one. An error says what was ignored.
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

// readSmall reads the beginning of a file; there need not be one. It neither waits for a FIFO nor follows a link.
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

// said is what the workers of this node have said in a round until they ended.
type said struct {
	// finished says that all of them have done all their work: they had exited with 0 before the round was ended, or have
	// said so. stop and excludeNode are words of any of them.
	finished, stop, excludeNode bool
	steps                       rdzv.Steps
}

// listen returns what the workers of the current round have said. All of them must have ended. It logs what it ignores.
func (a *Agent) listen() said {
	exited := a.exitedUnasked()
	s := said{finished: a.shown != nil}
	if a.steps != nil {
		s.steps = a.steps.look(time.Now())
		a.warnFell(s.steps)
	}
	for rank := range a.workers {
		c := a.controlOf(rank)
		s.finished = s.finished && (a.done || exited[rank] || c.finished)
		s.stop, s.excludeNode = s.stop || c.stop, s.excludeNode || c.excludeNode
	}
	return s
}

// controlOf reads what a worker of the current round has written.
func (a *Agent) controlOf(localRank int) control {
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
