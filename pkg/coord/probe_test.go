package coord

import (
	"errors"
	"testing"
	"time"
)

// TestProbe probes stores that would accept the agent and stores that would not. Probe and Dial must return the same
// errors.
func TestProbe(t *testing.T) {
	t.Parallel()
	secret := []byte("secret")
	for _, tc := range []struct {
		name   string
		server ServerOptions
		client DialOptions
		want   ProbeResult
	}{
		{name: "any run", client: DialOptions{Version: "v1", RunID: "a"}},
		{
			name: "this run", server: ServerOptions{Version: "v1", RunID: "a", Secret: secret},
			client: DialOptions{Version: "v1", RunID: "a", Secret: secret}, want: ProbeResult{Version: "v1", RunID: "a"},
		},
		{name: "other run", server: ServerOptions{RunID: "a"}, client: DialOptions{RunID: "b"}},
		{name: "other version", server: ServerOptions{Version: "v2"}, client: DialOptions{Version: "v1"}},
		{name: "other secret", server: ServerOptions{Secret: secret}, client: DialOptions{Secret: []byte("guess")}},
		{name: "no secret", server: ServerOptions{Secret: secret}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, addr := startServer(t, tc.server)
			tc.client.Addr = addr
			got, lookErr := Probe(t.Context(), tc.client)
			if stats := s.Stats(); stats.Sessions != 0 || stats.Keys != 0 {
				t.Errorf("a probe has left a trace: %+v", stats)
			}
			c, err := Dial(t.Context(), tc.client)
			if err == nil {
				defer closeStore(t, c)
			}
			if (err == nil) != (lookErr == nil) || err != nil && err.Error() != lookErr.Error() {
				t.Fatalf("Probe: %v\nDial: %v", lookErr, err)
			}
			if err != nil {
				if !errors.As(lookErr, new(*RefusedError)) {
					t.Errorf("%v is not a RefusedError", lookErr)
				}
				return
			}
			if got.RoundTrip <= 0 || got.Offset.Abs() > got.RoundTrip+time.Millisecond {
				t.Errorf("round trip %v, offset %v, on one machine", got.RoundTrip, got.Offset)
			}
			if got.RoundTrip, got.Offset = 0, 0; got != tc.want {
				t.Errorf("seen %+v, want %+v", got, tc.want)
			}
			if got, err = Probe(t.Context(), tc.client); err != nil || got.Agents != 1 {
				t.Errorf("with one agent there: %+v, %v", got, err)
			}
		})
	}
}
