package events

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fakeDNS knows one machine at 10.0.0.7 with names. With silent set it answers only when the context ends.
type fakeDNS struct {
	names  []string
	silent bool
}

func (d fakeDNS) LookupHost(ctx context.Context, _ string) ([]string, error) {
	if d.silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return []string{"10.0.0.7"}, nil
}

func (d fakeDNS) LookupAddr(_ context.Context, addr string) ([]string, error) {
	if addr != "10.0.0.7" || d.names == nil {
		return nil, errors.New("no such host")
	}
	return d.names, nil
}

func TestQualifiedHost(t *testing.T) {
	for names, want := range map[string]string{
		"":                                 "node1",
		"node1":                            "node1",
		"node1 alias":                      "node1",
		"node1.example.com.":               "node1.example.com",
		"node1 node1.example.com n1.other": "node1.example.com",
		"localhost":                        "node1",
		"localhost.localdomain localhost":  "node1",
		"localhost.localdomain n.example":  "n.example",
	} {
		if got := qualifiedHost(t.Context(), fakeDNS{names: strings.Fields(names)}, "node1"); got != want {
			t.Errorf("%q: %s, want %s", names, got, want)
		}
	}
}

// hosts returns the host names in lines of torch's events.
func hosts(t *testing.T, text string) (all []string) {
	t.Helper()
	for line := range strings.Lines(text) {
		var view struct{ Metadata struct{ Hostname string } }
		if err := json.Unmarshal([]byte(line), &view); err != nil {
			t.Fatal(err)
		}
		all = append(all, view.Metadata.Hostname)
	}
	return all
}

// All events of a launcher carry the same name, however early they are and however late the name is known. Emit never
// waits for it, and Close ends the search.
func TestQualifyHost(t *testing.T) {
	for _, tt := range []struct {
		name  string
		dns   fakeDNS
		wait  time.Duration // before the second event
		taken time.Duration // until all lines are written
		want  string
	}{
		{"known", fakeDNS{names: []string{"node1.example.com."}}, time.Minute, time.Minute, "node1.example.com"},
		{"unknown", fakeDNS{}, time.Minute, time.Minute, "node1"},
		{"no answer", fakeDNS{silent: true}, hostTimeout, hostTimeout, "node1"},
		{"no answer before the end", fakeDNS{silent: true}, time.Millisecond, time.Millisecond, "node1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out strings.Builder
				begun, lines := time.Now(), NewTorchLines(&out)
				lines.qualify(t.Context(), tt.dns, "node1")
				lines.Emit(Event{Kind: KindRound, Host: "node1"})
				if time.Since(begun) > 0 {
					t.Errorf("Emit waits %v", time.Since(begun))
				}
				<-time.After(tt.wait)
				lines.Emit(Event{Kind: KindRun, Host: "node1"})
				if err := lines.Close(); err != nil {
					t.Error(err)
				}
				if taken := time.Since(begun); taken != tt.taken {
					t.Errorf("lines are written after %v, want %v", taken, tt.taken)
				}
				if diff := cmp.Diff([]string{tt.want, tt.want}, hosts(t, out.String())); diff != "" {
					t.Errorf("hosts (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A DNS server that does not answer delays the end of a lookup no longer than its context.
func TestResolverEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := newResolver(func(context.Context, string, string) (net.Conn, error) {
		cancel()
		client, server := net.Pipe()
		t.Cleanup(func() { _ = server.Close() })
		return client, nil
	})
	begun := time.Now()
	if _, err := r.LookupAddr(ctx, "192.0.2.1"); err == nil {
		t.Error("a name without a server")
	}
	if took := time.Since(begun); took > 4500*time.Millisecond { // a query has 5 s
		t.Errorf("the lookup took %v", took)
	}
}
