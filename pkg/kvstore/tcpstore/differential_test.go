package tcpstore

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/kvstore/internal/storetest"
)

// The sequences avoid calls on which torch's own servers differ from each other or from this one, and calls whose
// outcome depends on timing. testKnownDifferences checks those marked *.
//
//	call                                           why no sequence has it
//	GET, MULTI_GET of a missing key *              torch's clients wait for the key first
//	over 8 KiB a key, 8 MiB a value, 128 Ki keys * Debian's servers have no limits
//	compare_set ends a wait for a missing key      Debian's servers end none; libuv's and ours release the wait
//	QUEUE_*                                        Debian's server closes the connection
//	LIST_KEYS                                      torch's Python accepts only keys in UTF-8
//	BARRIER                                        its callers block until all have arrived
//	check, append, multi_get, multi_set (1.13)     its protocol lacks them
//	a wait times out, then its key is set (1.13)   its client does not notify the server, and misreads its next reply
//	get, compare_set while another waits (1.13)    its Python module makes objects without the GIL
//	a set and then another client's get            a set has no reply: drive.py asks for one before another client's turn

// player plays a sequence with some clients against some server.
type player struct {
	name string
	play func(calls []storetest.Call) ([]storetest.Outcome, error)
}

// testDifferential plays sequences with torch's clients and ours, against torch's server and ours: first the fixed
// ones, which have every special value, then random ones. Several lanes run concurrently, because a sequence spends
// most of its time in timeouts.
func (d *torchDriver) testDifferential(t *testing.T) {
	const lanes = 8
	with := storetest.Torch2
	if d.version == "1.13" {
		with = storetest.Torch1
	}
	fixed := storetest.SpecialValues()
	sequences := len(fixed) + 250
	if d.version != testenv.Official || d.libuv { // 2.14 has the same server without libuv
		sequences = len(fixed) + testenv.Repeat(t, 100, 40_000)
	}
	seed := int(storetest.FirstSeed(t))

	var wg sync.WaitGroup
	for first := range lanes {
		_, ours := startServer(t, ServerOptions{})
		lane := d.lane(t)
		dialed := func(addr string) func([]storetest.Call) ([]storetest.Outcome, error) {
			stores := dialAll(t, addr, protocolOf(d.version))
			return func(calls []storetest.Call) ([]storetest.Outcome, error) {
				return storetest.Play(t.Context(), stores, calls)
			}
		}
		l := &laneRun{t: t, peer: with, players: []player{
			{"torch's client, torch's server", func(calls []storetest.Call) ([]storetest.Outcome, error) {
				return lane.play(lane.server, calls)
			}},
			{"torch's client, our server", func(calls []storetest.Call) ([]storetest.Outcome, error) {
				return lane.play(ours, calls)
			}},
			{"our client, torch's server", dialed(lane.server)},
			{"our client, our server", dialed(ours)},
		}}
		wg.Go(func() {
			for i := first; i < sequences && !t.Failed(); i += lanes {
				if i < len(fixed) {
					l.compare(fmt.Sprint("fixed sequence ", i), fixed[i])
					continue
				}
				random := seed + i - len(fixed)
				l.compare(fmt.Sprint("-rapid.seed ", random), storetest.Calls(random%32 == 0).Example(random))
			}
		})
	}
	wg.Wait()
}

// laneRun is the part of a differential test that one goroutine plays.
type laneRun struct {
	t       *testing.T
	peer    storetest.Target
	players []player
	played  int
}

// compare plays a sequence. If the players disagree, it shows the shortest part of it on which they still do.
func (l *laneRun) compare(name string, sequence []storetest.Call) {
	report, err := l.play(sequence)
	if err == nil && report == "" {
		return
	}
	enough := time.Now().Add(20 * time.Second) // each try may take a long timeout
	for i := 0; i < len(sequence) && err == nil && time.Now().Before(enough); {
		shorter := slices.Delete(slices.Clone(sequence), i, i+1)
		var still string
		if still, err = l.play(shorter); still == "" {
			i++
			continue
		}
		sequence, report = shorter, still
	}
	l.t.Errorf("%s: %s %v", name, report, err)
}

// play lets each player play a sequence. It describes the first difference from the model.
func (l *laneRun) play(sequence []storetest.Call) (report string, err error) {
	planned, want := storetest.Plan(l.peer, sequence)
	if len(planned) == 0 {
		return "", nil
	}
	l.played++
	for i, p := range l.players {
		got, err := p.play(withPrefix(fmt.Sprint(l.played, "/", i, "/"), planned))
		if err != nil {
			return "", fmt.Errorf("%s: %w", p.name, err)
		}
		if at := storetest.FirstDifference(want, got); at >= 0 {
			return storetest.Describe(planned, at, "the model", want[at], p.name, got[at]), nil
		}
	}
	return "", nil
}

// withPrefix returns the sequence with keys of its own.
func withPrefix(prefix string, calls []storetest.Call) []storetest.Call {
	own := slices.Clone(calls)
	for i, c := range own {
		keys := make([]storetest.Text, len(c.Keys))
		for k, key := range c.Keys {
			keys[k] = storetest.Text(prefix) + key
		}
		own[i].Keys = keys
	}
	return own
}
