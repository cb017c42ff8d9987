package status

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/events"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// exposed is what /metrics says of s.
func exposed(t *testing.T, s Snapshot) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics{s})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func TestMetrics(t *testing.T) {
	text := exposed(t, sample())
	for _, want := range []string{
		`elasticrun_info{rdzv_backend="c10d",version="1.0"} 1`,
		`elasticrun_state{state="running"} 1`, `elasticrun_state{state="waiting"} 0`,
		`elasticrun_restarts_total 1`, `elasticrun_membership_changes_total 1`, `elasticrun_worker_failures_total 2`,
		`elasticrun_round 2`,
		`elasticrun_worker_up{local_rank="1"} 1`, `elasticrun_worker_rank{local_rank="1"} 3`,
		`elasticrun_worker_cpu_cores{local_rank="0"} 1.015`,
		`elasticrun_worker_resident_memory_bytes{local_rank="0"} 3.221225472e+09`,
		`elasticrun_gpu_utilization_ratio{gpu="0"} 0.97`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	for _, want := range []string{
		`elasticrun_agent_steps_total{outcome="success",role="default",step="stop_workers"} 2`,
		`elasticrun_agent_steps_total{outcome="failure",role="default",step="rendezvous"} 1`,
		`elasticrun_agent_steps_total{outcome="success",role="default",step="assign_worker_ranks"} 3`,
		`elasticrun_agent_steps_total{outcome="success",role="default",step="run"} 0`,
		`elasticrun_agent_step_duration_seconds_sum{role="default",step="stop_workers"} 1`,
		`elasticrun_agent_step_duration_seconds_count{role="default",step="stop_workers"} 2`,
		`elasticrun_worker_group_states_total{role="default",state="failed"} 1`,
		`elasticrun_worker_group_states_total{role="default",state="succeeded"} 0`,
		`elasticrun_remaining_restarts{role="default"} 1`,
		`elasticrun_flakiness_ratio{role="default"} 0.33`,
		`elasticrun_run_total{role="default"} 0`, `elasticrun_run_success_with_retries_total{role="default"} 0`,
		`elasticrun_run_failed_no_retries_total{role="default"} 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	for _, free := range []string{"job7", "node3", "240", "loss"} { // what differs from job to job is no label
		if strings.Contains(text, free) {
			t.Errorf("%q is in\n%s", free, text)
		}
	}
	if text = exposed(t, (&Tracker{}).Snapshot()); strings.Contains(text, "elasticrun_round ") ||
		strings.Contains(text, "elasticrun_flakiness_ratio{") {
		t.Errorf("a round before the first:\n%s", text)
	}
}

func TestPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		testenv.Missing(t, "needs promtool (apt-get install prometheus): %v", err)
	}
	cmd := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(exposed(t, sample()))
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

// served serves a tracker.
func served(t *testing.T, b *Tracker) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	observer := NewObserver(b, Sources{Usage: &fakeSampler{}, Logger: zerolog.Nop()})
	s := Serve(l, observer, zerolog.Nop())
	t.Cleanup(func() {
		s.Close()
		observer.Close()
	})
	return l.Addr().String()
}

func ask(t *testing.T, method, addr, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

func TestServer(t *testing.T) {
	b := running()
	addr := served(t, b)
	const index = "elasticrun: the status of one node\n\n" +
		"/healthz  200 as long as the agent runs\n" +
		"/readyz   200 while the workers run or have succeeded, else 503\n" +
		"/status   the node's status as JSON\n" +
		"/metrics  metrics for Prometheus\n"
	for _, tt := range []struct {
		method, path string
		code         int
		body         string // in it
	}{
		{"GET", "/", 200, index},
		{"GET", "/healthz", 200, "ok\n"},
		{"HEAD", "/healthz", 200, ""},
		{"GET", "/readyz", 200, "running\n"},
		{"GET", "/status", 200, `"run_id": "job7"`},
		{"HEAD", "/status", 200, ""},
		{"GET", "/metrics", 200, `elasticrun_worker_up{local_rank="0"} 1`},
		{"POST", "/status", 405, ""},
		{"DELETE", "/healthz", 405, ""},
		{"GET", "/nowhere", 404, ""},
		{"GET", "/status/../../etc/passwd", 404, ""},
	} {
		code, body := ask(t, tt.method, addr, tt.path)
		if code != tt.code || !strings.Contains(body, tt.body) || tt.method == "HEAD" && body != "" {
			t.Errorf("%s %s: %d %q", tt.method, tt.path, code, body)
		}
	}
	s, err := Fetch(t.Context(), addr)
	if err != nil || s.Workers[1].Usage == nil {
		t.Errorf("Fetch: %+v, %v", s, err)
	}
	b.Emit(at(9, 0, events.Event{Kind: events.KindWaiting}))
	if code, body := ask(t, "GET", addr, "/readyz"); code != 503 || body != "waiting\n" {
		t.Errorf("while it waits: %d %q", code, body)
	}
}

// A malicious client gets at most one reply, and does not keep others out for long.
func TestServerIsBounded(t *testing.T) {
	addr := served(t, running())
	dial := func() net.Conn {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, tt := range []struct{ what, text, want string }{
		{"rubbish", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "400 Bad Request"},
		{
			"a huge header", "GET /status HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 20<<10) + "\r\n\r\n",
			"431 Request Header Fields Too Large",
		},
		{"no host", "GET /status HTTP/1.1\r\n\r\n", "400 Bad Request"},
		{"a pipelined crowd", strings.Repeat("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 100), "200 OK"},
	} {
		c := dial()
		_, _ = io.WriteString(c, tt.text) // it may be closed before all was sent
		said, _ := io.ReadAll(c)
		if strings.Count(string(said), "HTTP/1.1 ") != 1 || !strings.HasPrefix(string(said), "HTTP/1.1 "+tt.want) {
			t.Errorf("%s: %.300q", tt.what, said)
		}
	}
	held := make([]net.Conn, maxConns)
	for i := range held {
		held[i] = dial()
		if _, err := io.WriteString(held[i], "GET /"); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 * maxConns { // each takes the place of one that has sent no request
		if code, _ := ask(t, "GET", addr, "/healthz"); code != http.StatusOK {
			t.Errorf("beside clients that say nothing: %d", code)
		}
	}
	begun := time.Now()
	for _, c := range held { // until it is cut off
		_, _ = io.Copy(io.Discard, c)
	}
	if took := time.Since(begun); took > 10*requestTimeout { // some of the time is the machine's, if it is busy
		t.Errorf("clients that say nothing kept others out for %v", took)
	}
	if code, _ := ask(t, "GET", addr, "/healthz"); code != http.StatusOK {
		t.Errorf("afterwards: %d", code)
	}
}

func TestFetchOfOthers(t *testing.T) {
	answers := func(text string) string {
		return testenv.Serve(t, func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1024))
			_, _ = io.WriteString(c, text)
			_ = c.Close()
		})
	}
	for _, tt := range []struct{ addr, want string }{
		{fmt.Sprint("127.0.0.1:", testenv.FreePort(t)), "nothing listens there"},
		{answers(""), "closed without a reply"},
		{answers("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), `the reply is "404 Not Found"`},
		{answers("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"), "not the status of an agent"},
		{answers("SSH-2.0-OpenSSH\r\n"), "malformed HTTP"},
		{
			answers("HTTP/1.1 302 Found\r\nLocation: http://" + answers("SSH\r\n") + "/\r\nContent-Length: 0\r\n\r\n"),
			`the reply is "302 Found"`,
		},
	} {
		if _, err := Fetch(context.WithoutCancel(t.Context()), tt.addr); err == nil ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %q", err, tt.want)
		}
	}
}

// A server that closes a connection before it gets the request is one that has ended, whatever package http sees first.
func TestServerEndsBeforeTheRequest(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	addr := testenv.Serve(t, func(c net.Conn) {
		_ = c.Close()
		closed <- struct{}{}
	})
	for range 100 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://launcher/stop", strings.NewReader("me"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = roundTrip(req, func(ctx context.Context, _, _ string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			<-closed
			return c, err
		})
		if !closedSilently(err) {
			t.Fatal(err)
		}
	}
}
