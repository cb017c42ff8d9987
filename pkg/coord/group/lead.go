package group

import (
	"cmp"
	"iter"
	"maps"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// serving is one server of this member, in a term in which it leads.
type serving struct {
	term   uint64
	server *coord.Server // nil until it has loaded the contents
	begun  chan struct{} // closed when the server has loaded the contents, or cannot
	ended  chan struct{} // closed when the server, its writes, and what Options.Lead started have ended
}

// isEnding reports whether the server has begun to end.
func (s *serving) isEnding() bool { return s.server != nil && isEnding(s.server) }

func isEnding(server *coord.Server) bool {
	select {
	case <-server.Ended():
		return true
	default:
		return false
	}
}

// contents is what the replica holds, as the server loads it.
type contents map[string]map[string][]byte

// All returns the keys and values of a bucket.
func (c contents) All(bucket string) iter.Seq2[string, []byte] { return maps.All(c[bucket]) }

// setRole begins or ends to serve when the replica's role has changed. The loop calls it.
func (m *Member) setRole() {
	role := m.replica.Status().Role
	if s := m.serving; s != nil && (!role.Leading || role.Term != s.term || s.isEnding() && !m.dissolving) {
		m.stopServing()
	}
	if m.serving == nil && role.Leading && role.Term != m.servedTerm {
		m.startServing(role.Term)
	}
	if m.replica == nil {
		return
	}
	m.mu.Lock()
	m.leader = ""
	if role.Leader == m.id {
		m.leader = m.opts.Addr
	} else if role.Leader != 0 {
		m.leader = m.addrOf(role.Leader)
	}
	m.mu.Unlock()
}

// serveAgain begins another server if the latest one has ended by itself, although the member still leads. It waits
// until that server has ended completely: until then its writes may still succeed, and the next server would load
// contents without them. The loop calls serveAgain once a tick, so that servers that fail at once do not follow each
// other without a pause.
func (m *Member) serveAgain() {
	role := m.replica.Status().Role
	if m.serving != nil || !role.Leading || role.Term != m.servedTerm {
		return
	}
	select {
	case <-m.lastServed:
		m.startServing(role.Term)
	default:
	}
}

// startServing begins a server of the replica's contents. The server loads them in its own goroutine, so that the
// member, which already leads, keeps sending meanwhile. Nobody else writes the contents that the server loads.
func (m *Member) startServing(term uint64) {
	held := contents(m.replica.Freeze())
	opts := m.opts.Server
	opts.InstanceID, opts.OnMember = m.instance, m.onMember
	s, previous := &serving{term: term, begun: make(chan struct{}), ended: make(chan struct{})}, m.lastServed
	m.serving, m.servedTerm, m.lastServed = s, term, s.ended
	newServer := m.newServer
	m.running.Go(func() {
		defer close(s.ended)
		server, err := newServer(&keeper{m: m, of: s}, held, opts)
		m.call(func() {
			m.beginServing(s, server, err)
			close(s.begun)
		})
		select {
		case <-s.begun:
		case <-m.done:
		}
		if previous != nil {
			<-previous
		}
		if err == nil {
			m.run(server)
		}
	})
}

// beginServing makes a server that has loaded its contents the current one, unless the member has stopped leading
// meanwhile. err is the error of the load.
func (m *Member) beginServing(s *serving, server *coord.Server, err error) {
	switch {
	case m.serving != s && err == nil:
		server.Fail(coord.ErrServerClosed)
	case m.serving != s:
	case err != nil:
		m.log.Error().Err(err).Msg("this node cannot serve the job's store, and leaves its group")
		m.abandon(err)
	default:
		s.server = server
		m.mu.Lock()
		m.current = server
		m.mu.Unlock()
	}
}

// run runs the work of Options.Lead until the server ends, and then closes the server.
func (m *Member) run(server *coord.Server) {
	stop := func() {}
	if m.opts.Lead != nil && !isEnding(server) {
		stop = m.opts.Lead(server)
	}
	select {
	case <-server.Ended():
	case <-m.done:
		server.Fail(coord.ErrServerClosed)
	}
	stop()
	_ = server.Close() // the keeper's error
}

// stopServing ends the server; its clients look for the next one.
func (m *Member) stopServing() {
	m.mu.Lock()
	m.current = m.doorman
	m.mu.Unlock()
	if m.serving.server != nil {
		m.serving.server.Fail(coord.ErrServerClosed)
	}
	m.serving = nil
}

// elsewhere returns the address of the member that serves, for [coord.ServerOptions].
func (m *Member) elsewhere() (addr string, elsewhere bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return cmp.Or(m.leader, m.referral), true
}
