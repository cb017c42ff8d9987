package storeserver

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
)

// A store that does not reply is not healthy. The store gets only one request, however many requests clients send. It
// may recover.
func TestHealthOfAStuckStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		answer := make(chan counts)
		h := newHealth(func() counts { asked.Add(1); return <-answer }, nil)
		began := time.Now()
		var clients sync.WaitGroup
		for range 3 {
			clients.Go(func() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, nil)
				if body := w.Body.String(); w.Code != http.StatusServiceUnavailable ||
					body != `{"status":"stuck","uptime_seconds":0}`+"\n" {
					t.Errorf("answer %d %s", w.Code, body)
				}
			})
		}
		clients.Wait()
		if took := time.Since(began); took != replyTimeout || asked.Load() != 1 {
			t.Errorf("answered after %v; the store was asked %d times", took, asked.Load())
		}

		answer <- counts{}
		clients.Go(func() { answer <- counts{workers: tcpstore.Stats{Open: 7}} })
		w := httptest.NewRecorder()
		h.ServeHTTP(w, nil)
		if body := w.Body.String(); w.Code != http.StatusOK || !strings.Contains(body, `"open":7`) {
			t.Errorf("answer %d %s", w.Code, body)
		}
		clients.Wait()
	})
}

// A store whose agents' store has failed reports it while its clients finish their requests.
func TestHealthOfAFailedStore(t *testing.T) {
	failed, stopping := make(chan struct{}), make(chan struct{})
	h := newHealth(func() counts { return counts{} }, stopping)
	h.failed = failed
	for _, tt := range []struct {
		name, status string
		begin        func()
		code         int
	}{
		{name: "healthy", status: "ok", begin: func() {}, code: http.StatusOK},
		{name: "failed", status: "failed", begin: func() { close(failed) }, code: http.StatusServiceUnavailable},
		{name: "stopping", status: "stopping", begin: func() { close(stopping) }, code: http.StatusServiceUnavailable},
	} {
		tt.begin()
		if code, a := h.check(); code != tt.code || a.Status != tt.status {
			t.Errorf("%s: %d %q, want %d %q", tt.name, code, a.Status, tt.code, tt.status)
		}
	}
}

// Stopping waits for the store's reply, even after the client got another one.
func TestHealthWaitsForTheStore(t *testing.T) {
	var answered atomic.Bool
	answer := make(chan struct{})
	h := newHealth(func() counts { <-answer; return counts{} }, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop := h.serve(l, zerolog.Nop())
	got, err := http.Get("http://" + l.Addr().String() + healthPath)
	if err != nil {
		t.Fatal(err)
	}
	got.Body.Close()
	time.AfterFunc(50*time.Millisecond, func() { answered.Store(true); close(answer) })
	stop()
	if got.StatusCode != http.StatusServiceUnavailable || !answered.Load() {
		t.Errorf("answer %d; stop waited for the store: %v", got.StatusCode, answered.Load())
	}
}
