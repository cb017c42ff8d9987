package transport

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
)

// attempt is one connection that was tried. It keeps the first bytes that came, since they tell what the peer speaks: that is
// what a user has to know of a peer that is the wrong one, or the right one with other settings.
type attempt struct {
	net.Conn       // nil if err is not
	err      error // of the dialling

	mu    sync.Mutex
	first []byte // what came first, up to firstBytes of it
	left  bool   // the peer has ended the connection
}

// firstBytes are enough to know a TLS record, the beginning of an HTTP/1 answer and an HTTP/2 frame's header.
const firstBytes = 9

func (a *attempt) Read(p []byte) (int, error) {
	n, err := a.Conn.Read(p)
	a.mu.Lock()
	if missing := firstBytes - len(a.first); missing > 0 {
		a.first = append(a.first, p[:min(n, missing)]...)
	}
	a.left = a.left || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
	a.mu.Unlock()
	return n, err
}

// explain says why no call can be made over the connection, if that can be seen from what came first; secure tells that TLS was spoken to the peer.
func (a *attempt) explain(secure bool) error {
	if a.err != nil {
		return fmt.Errorf("%w: %w", ErrConnection, a.err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case len(a.first) == 0 && !a.left:
		return fmt.Errorf("%w: the peer accepts, but says nothing", ErrConnection)
	case len(a.first) == 0 && !secure:
		return fmt.Errorf("%w: the peer ended it without a word, as one does that expects TLS", ErrConnection)
	}
	return explainFirst(a.first, secure)
}

// explainFirst is nil if the bytes are the beginning of what was to be expected.
func explainFirst(first []byte, secure bool) error {
	switch spoken := languageOf(first); {
	case spoken == unclear, spoken == speaksTLS && secure, spoken == speaksHTTP2 && !secure:
		return nil
	case spoken == speaksTLS:
		return fmt.Errorf("%w: the peer speaks TLS, and this side does not", ErrConnection)
	case spoken == speaksHTTP2:
		return fmt.Errorf("%w: the peer speaks no TLS, and this side does", ErrConnection)
	default:
		return fmt.Errorf("%w: the peer's first bytes are %q", ErrProtocol, first)
	}
}

// language is what a peer seems to speak.
type language int

const (
	unclear language = iota // nothing, or too little to tell
	speaksTLS
	speaksHTTP2
	speaksOther
)

// languageOf knows a language by its first bytes.
func languageOf(first []byte) language {
	const (
		tlsAlert, tlsHandshake = 0x15, 0x16
		settings               = 4 // the type of the frame by which HTTP/2 begins
		goAway                 = 7 // and of that by which it ends, also before it has begun
	)
	at := func(i int, allowed ...byte) bool { return i >= len(first) || slices.Contains(allowed, first[i]) } // what has not come may be anything
	tls := at(0, tlsAlert, tlsHandshake) && at(1, 3)
	http2 := at(0, 0) && at(3, settings, goAway) && at(5, 0) && at(6, 0) && at(7, 0) && at(8, 0)
	switch {
	case tls && len(first) >= 2:
		return speaksTLS
	case http2 && len(first) == firstBytes:
		return speaksHTTP2
	case tls, http2:
		return unclear
	}
	return speaksOther
}
