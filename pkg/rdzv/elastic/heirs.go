package elastic

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/group"
)

// Heirs says which agents can keep the store if this process, which keeps it alone, is killed. Who proves that it has
// ended, its guard, asks one of them ([Heirs.HandOver]).
//
// An agent that is started again at the endpoint meanwhile must not begin another store. So the guard renames a file
// before it asks: the next agent here reads the new name, and asks the heirs before it founds a group. An agent that
// starts before the guard removes the file first, and so keeps the guard from handing over. An agent at another
// endpoint may begin a store too. Its first round begins a session's time later at the earliest; an heir takes over
// only within half of that after its leader's last word, and announces itself at the endpoints.
type Heirs struct {
	Addrs []string `json:"addrs"`
	// From and To are the names of the file, on this machine; empty if this process is at no endpoint. Only then founds an
	// agent that does not ask others first.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// MayGoOn says that there is a file To already.
	MayGoOn bool `json:"may_go_on,omitempty"`
	// Time is how long the guard may ask after it has renamed the file: the next agent here waits longer.
	Time time.Duration `json:"time"`
}

// Heirs returns nil if there is none, or if there is no place for the file.
func (a *C10d) Heirs() *Heirs {
	m := a.storeMember()
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.alone || len(m.known) == 0 {
		return nil
	}
	h := &Heirs{Addrs: m.known, MayGoOn: len(m.known) > 1, Time: a.TTL / 2}
	if m.place == nil {
		return h
	}
	if len(m.place.markers) != 1 || m.place.markers[0] == nil {
		return nil
	}
	h.From, h.To = m.place.markers[0].heirsFile(), m.place.markers[0].groupFile()
	return h
}

// handOverPause is the pause after all heirs were asked in vain, and handOverAttempt bounds an attempt.
const (
	handOverPause   = 100 * time.Millisecond
	handOverAttempt = time.Second
)

// HandOver asks the heirs, one after the other, until one has taken over, or may have. stored is what the dead process
// has stored last, and dial returns how to connect to an address. An heir may still be reading what the process has
// sent it, so HandOver tries again until ctx or h.Time has ended.
func (h *Heirs) HandOver(ctx context.Context, stored []byte, dial func(addr string) (coord.DialOptions, error)) {
	var begun time.Time // when the file was renamed
	for begun.IsZero() || time.Since(begun) < h.Time {
		for _, addr := range h.Addrs {
			if !h.ask(ctx, addr, stored, dial, &begun) {
				return
			}
		}
		select {
		case <-time.After(handOverPause):
			continue
		case <-ctx.Done():
		}
		break
	}
	if !begun.IsZero() {
		h.undo()
	}
}

// ask asks one heir. again reports whether another attempt makes sense: it certainly has not taken over.
func (h *Heirs) ask(
	ctx context.Context, addr string, stored []byte, dial func(addr string) (coord.DialOptions, error), begun *time.Time,
) (again bool) {
	opts, err := dial(addr)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, handOverAttempt)
	defer cancel()
	var failed error // of begin
	err = group.TakeOver(ctx, opts, stored, func() error {
		if !begun.IsZero() {
			return nil
		}
		if failed = h.begin(); failed == nil {
			*begun = time.Now()
		}
		return failed
	})
	return failed == nil && (errors.Is(err, group.ErrRefused) || errors.As(err, new(*coord.DialError)))
}

// begin renames the file. It fails if another agent has been started at the endpoint.
func (h *Heirs) begin() error {
	if h.From == "" {
		return nil
	}
	return os.Rename(h.From, h.To)
}

// undo removes what begin has made: no heir has taken over.
func (h *Heirs) undo() {
	if h.To != "" && !h.MayGoOn {
		_ = removeFile(h.To)
	}
}

// mayTakeOver reports whether this process may take over the group in place of its only voter: its agent has a session
// there.
func (m *storeMember) mayTakeOver(instance string) bool {
	session := m.access.sessionIn()
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.closing && !m.yielding && session == instance
}
