package status

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/jobs"
	"github.com/elasticrun/elasticrun/internal/logging"
	"github.com/elasticrun/elasticrun/internal/printable"
	"github.com/elasticrun/elasticrun/pkg/report"
)

const (
	// localTimeout bounds the replies of all launchers of this machine. maxAsked is how many are asked at a time.
	localTimeout = 2 * time.Second
	maxAsked     = 32

	// maxName bounds a run id, a script and a state in the list for people, maxPath the log folder, in bytes. Those of
	// other users' jobs may have any length, and a column is as wide as its longest cell.
	maxName = 100
	maxPath = 4096
)

// NoReply is the state of a job whose launchers do not reply.
const NoReply State = "no reply"

// LocalJob is a job of which launchers run on this machine.
type LocalJob struct {
	RunID    string `json:"run_id"`
	Script   string `json:"script"`
	User     string `json:"user"`
	Backend  string `json:"rdzv_backend"`
	Endpoint string `json:"rdzv_endpoint,omitempty"` // empty for a job of one node
	// State is that of the first launcher that has replied. If none has, it is Suspended if a launcher is stopped by a
	// signal, else NoReply. Round is the latest one, null before the first.
	State State `json:"state"`
	// Why and WhyTime are those of the first launcher that has replied.
	Why     string       `json:"why,omitempty"`
	WhyTime *report.Time `json:"why_time,omitempty"`
	Round   *Round       `json:"round"`
	Since   report.Time  `json:"since"` // the start of the first launcher
	LogDir  string       `json:"log_dir,omitempty"`
	// PIDs are the processes that the user has started on this machine, as far as they are known.
	PIDs []int `json:"pids"`

	uid               int
	schedulerJob, dir string // as in jobs.Launcher
	launchers         []jobs.Running
	replied           bool // one of the launchers has
}

// LocalJobs returns the jobs of this user on this machine, or of all users, in the order of their start.
func LocalJobs(ctx context.Context, machine jobs.Folders, allUsers bool) []LocalJob {
	ctx, cancel := context.WithTimeout(ctx, localTimeout)
	defer cancel()
	running := machine.List(allUsers)
	states := make([]*Snapshot, len(running))
	slots := make(chan struct{}, maxAsked)
	var asking sync.WaitGroup
	for i, l := range running {
		asking.Go(func() {
			slots <- struct{}{}
			running[i].PID = l.FindPID(ctx)
			if s, err := fetchLocal(ctx, l, "/state"); err == nil {
				states[i] = &s
			}
			<-slots
		})
	}
	asking.Wait()
	return groupJobs(running, states)
}

// groupJobs combines the launchers of one user that take part in one run. states has nil for a launcher that has not
// replied.
func groupJobs(running []jobs.Running, states []*Snapshot) []LocalJob {
	all := []LocalJob{}
	for i, l := range running {
		s := states[i]
		at := slices.IndexFunc(all, func(j LocalJob) bool {
			return l.Endpoint != "" && j.uid == l.UID && j.RunID == l.RunID && j.Backend == l.Backend && j.Endpoint == l.Endpoint
		})
		if at < 0 {
			at = len(all)
			all = append(all, LocalJob{
				PIDs: []int{}, RunID: l.RunID, Script: l.Script, Backend: l.Backend, Endpoint: l.Endpoint,
				User: userName(l.UID), uid: l.UID,
				State: NoReply, Since: report.Time{Time: l.Started}, LogDir: l.LogDir, schedulerJob: l.SchedulerJob, dir: l.Dir,
			})
		}
		j := &all[at]
		j.launchers = append(j.launchers, l)
		if l.PID > 0 {
			j.PIDs = append(j.PIDs, l.PID)
		}
		if s == nil {
			if j.State == NoReply && l.PID > 0 && jobs.IsStopped(l.PID) {
				j.State = Suspended
			}
			continue
		}
		if !j.replied {
			j.State, j.Why, j.WhyTime, j.replied = s.State, s.Why, s.WhyTime, true
		}
		if r := OfAgent(*s).Round; r != nil && (j.Round == nil || r.Number > j.Round.Number) {
			j.Round = r
		}
	}
	return all
}

// userName returns the name of a user, or the number if there is none.
func userName(uid int) string {
	id := strconv.Itoa(uid)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}

// PrintJobs lists the jobs of this user on this machine. root sees the jobs of all users.
func PrintJobs(ctx context.Context, cfg *config.PS, machine jobs.Folders, stdout io.Writer) error {
	allUsers := os.Geteuid() == 0
	all, now := LocalJobs(ctx, machine, allUsers), time.Now()
	text := []byte(jobsText(all, allUsers, now))
	if cfg.JSON {
		list := struct {
			Schema int         `json:"schema"`
			Time   report.Time `json:"time"`
			Jobs   []LocalJob  `json:"jobs"`
		}{Schema, report.Time{Time: now}, all}
		data, err := json.MarshalIndent(list, "", "  ")
		if err != nil {
			return err
		}
		text = append(logging.JSON(data), '\n')
	}
	_, err := stdout.Write(text)
	return err
}

// jobsText shows jobs to people, one line each. Below, it says what each waiting job waits for.
func jobsText(all []LocalJob, users bool, now time.Time) string {
	if len(all) == 0 {
		if users {
			return "no job runs on this machine\n"
		}
		return "no job of yours runs on this machine\n"
	}
	head := "RUN ID\tSCRIPT\tNODES\tWORKERS\tSTATE\tRESTARTS\tSINCE\tPID\tLOGS"
	if users {
		head = "USER\t" + head
	}
	var b strings.Builder
	table(&b, head, len(all), func(i int) string {
		row := jobRow(all[i])
		if users {
			row = printable.Quote(all[i].User) + "\t" + row
		}
		return row
	})
	for _, j := range all {
		if why := whyText(Snapshot{Why: j.Why, WhyTime: j.WhyTime}, now); why != "" && j.State == Waiting {
			b.WriteString("\n" + printable.Quote(report.Head(j.RunID, maxName)) + " waits: " + why + "\n")
		}
	}
	return b.String()
}

// namePID formats the process id of a launcher, which may be unknown.
func namePID(pid int) string { return cmp.Or(joinPIDs([]int{pid}), "unknown") }

// joinPIDs formats process ids.
func joinPIDs(pids []int) string {
	var all []string
	for _, pid := range pids {
		if pid > 0 {
			all = append(all, strconv.Itoa(pid))
		}
	}
	return strings.Join(all, ",")
}

// jobRow formats a job as cells.
func jobRow(j LocalJob) string {
	nodes, workers, restarts := "-", "-", "-"
	if r := j.Round; r != nil {
		nodes, workers = strconv.Itoa(r.Nodes), strconv.Itoa(r.WorldSize)
		restarts = fmt.Sprintf("%d/%d", r.Restarts, r.MaxRestarts)
	}
	logs := "-"
	if j.LogDir != "" {
		logs = printable.Quote(report.Head(j.LogDir, maxPath))
	}
	name := func(text string) string { return report.Head(text, maxName) }
	return cells(printable.Quote(name(j.RunID)), cmp.Or(printable.Line(name(j.Script)), "-"), nodes, workers,
		printable.Line(name(string(j.State))), restarts, j.Since.Local().Format(time.DateTime),
		cmp.Or(joinPIDs(j.PIDs), "-"), logs)
}
