package procs

import (
	"bytes"
	"os"
	"strconv"

	"github.com/elasticrun/elasticrun/pkg/procs/internal/proctree"
)

// When memory runs out, the kernel must choose a worker, which is restarted, and not the agent or the guard, which
// report it. The kernel chooses by memory size and by oom_score_adj, from -1000 to 1000.
const (
	workerOOM = 100 // added to the agent's value: counts like a tenth of all memory
	maxOOM    = 1000
)

// preferForOOM raises the score of a worker that was just started, which needs no privilege. A worker that has
// already set its own score keeps it. If the score cannot be raised (/proc is read-only, or the program is not the
// user's to inspect), the kernel chooses by size alone.
func preferForOOM(pid int) {
	if !proctree.ProcIsOurs() {
		return
	}
	own, ok := oomScoreAdj("self")
	theirs, alive := oomScoreAdj(strconv.Itoa(pid))
	if !ok || !alive || theirs != own {
		return
	}
	raised := strconv.Itoa(min(own+workerOOM, maxOOM))
	_ = os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte(raised), 0)
}

func oomScoreAdj(pid string) (score int, ok bool) {
	data, err := os.ReadFile("/proc/" + pid + "/oom_score_adj")
	if err != nil {
		return 0, false
	}
	score, err = strconv.Atoi(string(bytes.TrimSpace(data)))
	return score, err == nil
}
