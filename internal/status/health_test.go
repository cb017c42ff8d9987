package status

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/events"
)

func TestLiveness(t *testing.T) {
	start := time.Unix(1000, 0)
	type check struct {
		at       int // seconds after start
		progress bool
		alive    bool
		since    int // seconds
	}
	for _, tt := range []struct {
		name   string
		checks []check
	}{
		{"progress", []check{{10, true, true, 0}, {500, true, true, 0}}},
		{"silent for a minute", []check{{10, true, true, 0}, {20, false, true, 10}, {80, false, true, 70}, {81, false, false, 71}}},
		{"silent, and back", []check{{10, false, true, 10}, {90, false, false, 90}, {91, true, true, 0}, {92, false, true, 1}}},
		{"nobody asked", []check{{3600, false, true, 3600}, {3661, false, false, 3661}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := liveness{progress: start}
			for _, c := range tt.checks {
				alive, since := l.record(start.Add(time.Duration(c.at)*time.Second), c.progress)
				if alive != c.alive || since != time.Duration(c.since)*time.Second {
					t.Errorf("after %d s: %v, %v", c.at, alive, since)
				}
			}
		})
	}
}

func TestServeHealth(t *testing.T) {
	var tracker Tracker
	observer := NewObserver(&tracker, Sources{Logger: zerolog.Nop()})
	defer observer.Close()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked, answer := 0, true
	server := ServeHealth(l, observer, func(context.Context) bool { asked++; return answer }, zerolog.Nop())
	defer server.Close()
	ask := func(method, path string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, "http://"+l.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		reply, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		body, err := io.ReadAll(reply.Body)
		if err != nil {
			t.Fatal(err)
		}
		return reply.StatusCode, string(body)
	}
	if code, body := ask("GET", "/"); code != 200 ||
		body != `{"alive":true,"last_progress_seconds":0,"state":"starting","workers":[]}`+"\n" || asked > 0 {
		t.Errorf("before the start: %d %s", code, body)
	}
	tracker.Emit(events.Event{Kind: events.KindLauncherStarted, LocalWorldSize: 1})
	tracker.Emit(events.Event{Kind: events.KindRound, Nodes: 1, WorldSize: 1, Round: new(0)})
	tracker.Emit(events.Event{Kind: events.KindWorkerStarted, Rank: new(3), LocalRank: new(0), PID: 77, Round: new(0)})
	if code, body := ask("GET", "/any/path?x"); code != 200 ||
		!strings.HasSuffix(body, `"state":"running","workers":[{"rank":3,"local_rank":0,"pid":77,"state":"running"}]}`+"\n") {
		t.Errorf("%d %s", code, body)
	}
	answer = false
	if code, body := ask("GET", "/"); code != 200 || asked != 2 {
		t.Errorf("silent for a moment: %d %s, asked %d times", code, body, asked)
	}
	if code, _ := ask("POST", "/"); code != 405 {
		t.Errorf("POST: %d", code)
	}
	silent := &liveness{silent: time.Now().Add(-2 * healthTimeout)}
	reply := httptest.NewRecorder()
	healthHandler(observer, silent, func(context.Context) bool { return false }).ServeHTTP(
		reply, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	if reply.Code != 503 || !strings.HasPrefix(reply.Body.String(), `{"alive":false,`) {
		t.Errorf("silent for two minutes: %d %s", reply.Code, reply.Body)
	}
}
