package guard

import (
	"testing"

	"github.com/elasticrun/elasticrun/internal/siginfo"
)

// A signal that a process has sent counts, whatever keys were typed around it.
func TestQuitOrigin(t *testing.T) {
	for _, tt := range []struct {
		name         string
		kernel, sent int
		want         quitOrigin
	}{
		{"a key", 1, 0, quitTyped},
		{"several keys at once", 3, 0, quitTyped},
		{"a sent one", 0, 1, quitSent},
		{"both", 2, 1, quitSent},
		{"none is new", 0, 0, quitHandled},
	} {
		origin := siginfo.Origin{Kernel: tt.kernel, Sent: tt.sent}
		if got := originOfQuit(origin, true, true); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
		if originOfQuit(origin, false, true) != quitSent || originOfQuit(origin, true, false) != quitSent {
			t.Errorf("%s: it has no effect where the key is not the guard's", tt.name)
		}
	}
}
