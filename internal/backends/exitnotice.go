package backends

import (
	"context"
	"encoding/json"
	"errors"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/certfiles"
	"github.com/elasticrun/elasticrun/pkg/coord/etcd"
	"github.com/elasticrun/elasticrun/pkg/procs/guard"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
)

// exitNotice is what the guard needs to end the session of an agent that has died, after it has reaped the last process
// of the job. Without the notice the other nodes must wait until the session expires, because nothing else proves that
// no worker is left.
type exitNotice struct {
	// If the store is elasticrun's own:
	Addrs   []string `json:",omitempty"` // where the store may be; empty: the store is etcd
	Socket  string   `json:",omitempty"` // the store's Unix socket; empty: the store is at one of Addrs
	RunID   string   `json:",omitempty"`
	Version string   `json:",omitempty"`
	Secret  []byte   `json:",omitempty"`
	Token   string   `json:",omitempty"`
	// Certificates has absolute paths; nil for none. ServerNames are the accepted names in the store's certificate.
	Certificates *certfiles.Files `json:",omitempty"`
	ServerNames  []string         `json:",omitempty"`
	// Heirs are the agents that can take over the store if the agent kept it alone; nil for none.
	Heirs *elastic.Heirs `json:",omitempty"`
	// If the store is etcd:
	Etcd    *etcd.Options   `json:",omitempty"`
	Session coord.SessionID `json:",omitempty"`
}

// exitNotices gives the guard an exit notice for each session that the agent opens, and withdraws it when the agent
// ends the session itself.
type exitNotices struct {
	runID    string
	access   *elastic.C10d // nil: the store is etcd
	r        config.Rendezvous
	version  string
	lifeline *guard.Lifeline
	log      zerolog.Logger
}

// session implements elastic.Options.Session.
func (n *exitNotices) session(store coord.Store) {
	var notice exitNotice
	switch s := store.(type) {
	case *coord.Client:
		notice = exitNotice{
			Addrs: s.Addrs(), Socket: n.access.Socket, Heirs: n.access.Heirs(),
			RunID: n.runID, Version: n.version, Secret: []byte(n.r.Secret.Reveal()), Token: s.Token(),
		}
		n.addCertificates(&notice)
	case *etcd.Store:
		options, err := etcdOptions(n.r, n.runID, zerolog.Nop())
		if err != nil { // cannot happen: the session has been opened with these options
			n.log.Warn().Err(err).Msg("there is no exit notice for the guard")
		}
		options.Logger = nil
		notice = exitNotice{Etcd: &options, Session: s.Session()}
	default: // no session, or one of a store in this process, which ends with the process
		n.set(nil)
		return
	}
	text, err := json.Marshal(notice)
	if err != nil {
		n.log.Warn().Err(err).Msg("the exit notice for the guard could not be encoded")
		return
	}
	n.set(text)
}

// addCertificates adds what the notice needs to reach a store that demands certificates.
func (n *exitNotices) addCertificates(notice *exitNotice) {
	if n.access.Socket != "" || !n.r.Certificates.Given() {
		return
	}
	files, err := n.r.Certificates.Absolute()
	if err != nil { // the working directory was removed
		n.log.Warn().Err(err).Msg("the guard's exit notice has no certificates")
		return
	}
	notice.Certificates, notice.ServerNames = &files, n.r.StoreNames()
}

func (n *exitNotices) set(notice []byte) {
	err := n.lifeline.SetExitNotice(notice)
	if err != nil && !errors.Is(err, syscall.EPIPE) { // EPIPE: the guard has died, which the lifeline reports
		n.log.Warn().
			Err(err).
			Msg("the guard did not take the exit notice: if this agent is killed, the other nodes wait until its session " +
				"expires")
	}
}

// Bounds of sending an exit notice, so that it does not delay the end of a job whose agent has died.
const (
	ExitNoticeTimeout = 3 * time.Second
	ExitNoticeAttempt = time.Second
	// The pause between attempts grows to exitNoticePause.
	exitNoticePause = 160 * time.Millisecond
	// takeoverTime is added if another agent must take over the store first.
	takeoverTime = 4 * time.Second
)

// SendExitNotice reports to the coordination store of a dead agent that no process of its job is left. While the store
// does not answer, it retries until timeout. If the store may be at several addresses and timeout is at least
// ExitNoticeTimeout, it adds takeoverTime. stored is the state of the store that the agent last gave its guard: if the
// agent kept the store alone, another agent takes it over first.
func SendExitNotice(text, stored []byte, timeout time.Duration) error {
	var notice exitNotice
	if err := json.Unmarshal(text, &notice); err != nil {
		return err
	}
	if len(notice.Addrs) > 1 && timeout >= ExitNoticeTimeout {
		timeout += takeoverTime
	}
	if notice.Heirs != nil && len(stored) > 0 {
		notice.Heirs.HandOver(context.Background(), stored, notice.dialOptions)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for pause := exitNoticePause / 8; ; pause = min(2*pause, exitNoticePause) {
		err := notice.send(ctx)
		if err == nil || !errors.Is(err, coord.ErrUnavailable) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// send makes one attempt.
func (n *exitNotice) send(ctx context.Context) error {
	if n.Etcd != nil {
		options := *n.Etcd
		options.DialTimeout = ExitNoticeAttempt
		return etcd.EndSession(ctx, options, n.Session)
	}
	if len(n.Addrs) == 0 {
		return errors.New("the exit notice names no store")
	}
	options, err := n.dialOptions(n.Addrs[0])
	if err != nil {
		return err
	}
	others := n.Addrs[1:]
	if n.Socket != "" {
		others = nil
	}
	return coord.EndSession(ctx, options, n.Token, others...)
}

// dialOptions returns how to connect to an agent that keeps the store at addr.
func (n *exitNotice) dialOptions(addr string) (coord.DialOptions, error) {
	options := coord.DialOptions{Addr: addr}
	if n.Socket != "" {
		options = elastic.LocalDialOptions(n.Socket)
	}
	if n.Certificates != nil {
		var err error
		if options.Certificates, err = certfiles.Open(*n.Certificates, zerolog.Nop()); err != nil {
			return options, err
		}
		// With several addresses, some are no endpoints: the store itself named them, and any certificate of the CA will do.
		options.ServerNames, options.AnyName = n.ServerNames, len(n.Addrs) > 1
	}
	options.RunID, options.Version, options.Secret, options.Timeout = n.RunID, n.Version, n.Secret, ExitNoticeAttempt
	return options, nil
}
