package coord

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

func TestRefusalTallies(t *testing.T) {
	var r refusals
	a, b := refusalSource{netip.MustParseAddr("10.0.0.1"), ReasonRunID}, refusalSource{
		netip.MustParseAddr("10.0.0.1"),
		ReasonSecret,
	}
	if !r.add(a, "one", 0) || !r.add(b, "other", time.Second) {
		t.Error("the first refusal of an address and reason is not logged")
	}
	for range 498 {
		if r.add(a, "more", time.Second) {
			t.Fatal("a further refusal is logged")
		}
	}
	if at, ok := r.next(); !ok || at != refusalInterval {
		t.Errorf("next summary at %v, %v", at, ok)
	}
	counts := func(due []tally) (n []int) {
		for _, d := range due {
			n = append(n, d.times)
		}
		return n
	}
	if diff := cmp.Diff([]int{498}, counts(r.due(refusalInterval+time.Second))); diff != "" {
		t.Errorf("the first summary (-want +got):\n%s", diff)
	}
	if !r.add(b, "again", 2*refusalInterval) {
		t.Error("a refusal after an interval of silence is not logged")
	}
	if due := r.due(10 * refusalInterval); len(due) != 0 || !r.add(a, "", 0) {
		t.Errorf("%v is due though nothing came", due)
	}
}

// TestRefusalsOfManyAddresses checks that the log lines of an interval are bounded for any number of addresses.
func TestRefusalsOfManyAddresses(t *testing.T) {
	var r refusals
	addr, lines := netip.MustParseAddr("10.0.0.1"), 0
	for range 1000 {
		if r.add(refusalSource{addr, ReasonSecret}, "line", 0) {
			lines++
		}
		addr = addr.Next()
	}
	due := r.due(refusalInterval)
	if lines != maxTallies || len(due) != 1 || due[0].times != 1000-maxTallies || due[0].from.IsValid() {
		t.Errorf("%d lines, then %v", lines, due)
	}
}

// TestRefusedAgentDoesNotFloodTheLog checks that a client that retries with a wrong secret causes one log line at once
// and then one for each minute.
func TestRefusedAgentDoesNotFloodTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testenv.Buffer
		s := NewServer(ServerOptions{Secret: []byte("right"), Logger: zerolog.New(&log)})
		guess := func() {
			_, err := Dial(t.Context(), DialOptions{Addr: "pipe", Secret: []byte("wrong"), Conn: pipeTo(s)})
			if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Reason != ReasonSecret {
				t.Fatal(err)
			}
		}
		for range 500 {
			guess()
		}
		synctest.Wait()
		if n := strings.Count(log.String(), "\n"); n != 1 ||
			!strings.Contains(log.String(), `"message":"refused an agent: `) {
			t.Errorf("%d lines at once:\n%.500s", n, &log)
		}
		<-time.After(refusalInterval + time.Second)
		synctest.Wait()
		if n := strings.Count(log.String(), "\n"); n != 2 || !strings.Contains(log.String(), `"times":499`) {
			t.Errorf("%d lines after an interval:\n%.500s", n, &log)
		}
		guess()
		guess()
		synctest.Wait() // the client leaves before the store has counted it
		_ = s.Close()
		if n := strings.Count(log.String(), "\n"); n != 3 || !strings.Contains(log.String(), `"times":2`) {
			t.Errorf("%d lines in the end:\n%.500s", n, &log)
		}
		if got := s.Stats().Refused; got != 502 {
			t.Errorf("%d refusals are counted", got)
		}
	})
}
