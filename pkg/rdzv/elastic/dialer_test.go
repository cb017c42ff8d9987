package elastic

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// If a store's address has failed for longer than a session lives, the dialer tries the addresses that the name has
// now.
func TestDialerFollowsTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errGone := errors.New("gone")
		up, tried := []string{"10.0.0.1:29400"}, []string(nil)
		d := &endpointDialer{
			addr: netip.MustParseAddrPort("10.0.0.1:29400"), after: 15 * time.Second,
			connect: func(_ context.Context, addr string) (net.Conn, error) {
				if tried = append(tried, addr); slices.Contains(up, addr) {
					c, other := net.Pipe()
					_ = other.Close()
					return c, nil
				}
				return nil, errGone
			},
			resolve: func(context.Context) ([]netip.Addr, error) {
				return []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}, nil
			},
		}
		dial := func(want ...string) {
			t.Helper()
			tried = nil
			c, err := d.dial(t.Context())
			if c != nil {
				_ = c.Close()
			} else if !errors.Is(err, errGone) {
				t.Error(err)
			}
			if ok := slices.Contains(up, want[len(want)-1]); ok != (err == nil) {
				t.Errorf("connected: %v, want %v", err == nil, ok)
			}
			if diff := cmp.Diff(want, tried); diff != "" {
				t.Error(diff)
			}
		}
		dial("10.0.0.1:29400")
		up = []string{"10.0.0.2:29400"}
		dial("10.0.0.1:29400")
		<-time.After(14 * time.Second)
		dial("10.0.0.1:29400")
		<-time.After(time.Second)
		dial("10.0.0.1:29400", "10.0.0.2:29400")
		dial("10.0.0.2:29400")
		up = nil
		dial("10.0.0.2:29400")
		<-time.After(15 * time.Second)
		dial("10.0.0.2:29400", "10.0.0.1:29400")
		d.resolve = nil
		dial("10.0.0.2:29400")
	})
}
