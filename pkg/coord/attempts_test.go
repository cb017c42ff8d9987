package coord

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
)

// TestAttemptsStop stops attempts that get their sessions at the same time. One of them is used and the others are
// closed.
func TestAttemptsStop(t *testing.T) {
	for _, won := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			opened := make(chan net.Conn, 3)
			open := func(addr string) *established {
				here, there := net.Pipe()
				opened <- there
				return &established{addr: addr, nc: here}
			}
			var plan addressPlan
			plan.list = []*plannedAddress{{addr: "a:1"}, {addr: "b:1"}}
			r := newAttempts(t.Context(), plan, func(ctx context.Context, addr string) attemptResult {
				<-ctx.Done()
				return attemptResult{addr: addr, got: open(addr)}
			})
			r.begin()
			var first *established
			if won {
				first = open("c:1")
			}
			got := r.stop(first)
			if got == nil || won && got != first {
				t.Fatalf("stop returned %+v", got)
			}
			closed := 0
			for n := len(opened); n > 0; n-- {
				there := <-opened
				ended := make(chan error, 1)
				go func() {
					_, err := there.Read(make([]byte, 1))
					ended <- err
				}()
				synctest.Wait()
				select {
				case err := <-ended:
					if closed++; !errors.Is(err, io.EOF) {
						t.Error(err)
					}
				default:
				}
			}
			want := 1
			if won {
				want = 2
			}
			if closed != want {
				t.Errorf("%d connections are closed, want %d", closed, want)
			}
			got.nc.Close()
		})
	}
}
