package agent

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// announcePreemption writes the preempt file and signals the workers that handle the signal. It returns which local
// ranks have got the signal.
func (a *Agent) announcePreemption(p Processes, stop rdzv.Stop, saveBy time.Time) (signaled map[int]bool) {
	if dir := a.opts.WorkerDir; dir != "" {
		if err := writePreemptFile(preemptFile(dir, stop.Round), stop, saveBy); err != nil {
			a.log.Warn().Err(err).Msg("cannot write the file that $" + PreemptFileEnv + " names")
		}
	}
	signaled = map[int]bool{}
	p.SignalHandlers(stop.Preemption.Signal, signaled)
	return signaled
}

// preemptFile returns the path of a round's preempt file; see [PreemptFileEnv].
func preemptFile(dir string, round int) string {
	return filepath.Join(dir, strconv.Itoa(round)+".preempted")
}

// preemptNotice is the content of a preempt file.
type preemptNotice struct {
	Signal string `json:"signal"`
	By     string `json:"by"`
	// Workers that still run get SIGTERM at SaveBy. All are dead at KillBy. Both are Unix seconds.
	SaveBy float64 `json:"save_by"`
	KillBy float64 `json:"kill_by"`
}

// writePreemptFile creates a preempt file. The file appears complete, except on a full disk: then it may be cut off,
// because its existence alone announces the preemption.
func writePreemptFile(path string, stop rdzv.Stop, saveBy time.Time) error {
	inSeconds := func(t time.Time) float64 { return float64(max(0, t.UnixMilli())) / 1000 }
	notice := preemptNotice{
		Signal: procs.SignalName(stop.Preemption.Signal), By: stop.Preemption.By,
		SaveBy: inSeconds(saveBy), KillBy: inSeconds(stop.KillBy),
	}
	data, err := json.Marshal(notice)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	_ = os.Remove(path + ".new") // a worker may have put a FIFO there
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	return errors.Join(err, f.Close(), os.Rename(path+".new", path))
}
