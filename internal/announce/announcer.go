package announce

import (
	"time"

	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// Announcer is an events.Sink that prints the lines on node rank 0: [Start] in this node's first round, and at the end
// [Success] or the goodput of a job that failed. Each is printed at most once.
type Announcer struct {
	job     Start
	show    func(line string)
	began   time.Time // when the launcher started
	rounds  int       // in which this node was
	isFirst bool      // this node has rank 0 in the newest round
}

// New returns an announcer that passes each line to show, without a newline. The first round sets the numbers of nodes
// and workers of job.
func New(job Start, show func(line string)) *Announcer { return &Announcer{job: job, show: show} }

// Emit implements events.Sink.
func (a *Announcer) Emit(e events.Event) {
	switch e.Kind {
	case events.KindLauncherStarted:
		a.began = e.Time
	case events.KindRound:
		a.rounds++
		a.isFirst = e.NodeRank != nil && *e.NodeRank == 0
		if a.isFirst && a.rounds == 1 {
			a.job.Nodes, a.job.Workers = e.Nodes, e.WorldSize
			a.show(a.job.String())
		}
	case events.KindEnd:
		if a.isFirst {
			a.end(e)
		}
	}
}

// end prints the last line of a job that succeeded, or how a job that did not succeed used its time.
func (a *Announcer) end(e events.Event) {
	s := Success{
		Name: a.job.Name, Took: e.Time.Sub(a.began), Restarts: restarts(e), OthersUnknown: e.OthersUnknown, Used: e.Used,
	}
	switch {
	case e.Reason == report.ReasonSuccess:
		a.show(s.String())
	case s.saysUsed():
		a.show("goodput of " + s.Name + ": " + e.Used.Details())
	}
}

func restarts(e events.Event) int {
	if e.Restarts == nil {
		return 0
	}
	return *e.Restarts
}
