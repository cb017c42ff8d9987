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

// attempt is one attempt to connect. It keeps the first bytes from the peer, because they show which protocol the
// peer speaks. A user needs that to recognize a wrong peer or wrong TLS settings.
type attempt struct {
	net.Conn       // nil if err is set
	err      error // error of the dial

	mu    sync.Mutex
	first []byte // first bytes received, at most firstBytes
	left  bool   // the peer has closed the connection
}

// firstBytes is enough for a TLS record, the beginning of an HTTP/1 response, and the header of an HTTP/2 frame.
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

// explain returns why no call can use the connection, if the first bytes show it. secure means that this side spoke
// TLS.
func (a *attempt) explain(secure bool) error {
	if a.err != nil {
		return fmt.Errorf("%w: %w", ErrConnection, a.err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case len(a.first) == 0 && !a.left:
		return fmt.Errorf("%w: the peer accepts connections but sends nothing", ErrConnection)
	case len(a.first) == 0 && !secure:
		return fmt.Errorf("%w: the peer closed it at once; does it expect TLS?", ErrConnection)
	}
	return explainFirst(a.first, secure)
}

// explainFirst returns nil if the bytes are the beginning of the expected protocol.
func explainFirst(first []byte, secure bool) error {
	switch spoken := languageOf(first); {
	case spoken == unclear, spoken == speaksTLS && secure, spoken == speaksHTTP2 && !secure:
		return nil
	case spoken == speaksTLS:
		return fmt.Errorf("%w: the peer speaks TLS, but this side does not", ErrConnection)
	case spoken == speaksHTTP2:
		return fmt.Errorf("%w: this side speaks TLS, but the peer does not", ErrConnection)
	default:
		return fmt.Errorf("%w: the peer's first bytes are %q", ErrProtocol, first)
	}
}

// language is the protocol that a peer seems to speak.
type language int

const (
	unclear language = iota // no bytes, or too few
	speaksTLS
	speaksHTTP2
	speaksOther
)

// languageOf recognizes a protocol by its first bytes.
func languageOf(first []byte) language {
	const (
		tlsAlert, tlsHandshake = 0x15, 0x16
		settings               = 4 // type of the frame that begins HTTP/2
		goAway                 = 7 // type of the frame that ends HTTP/2, possibly before it has begun
	)
	// Bytes that are still missing may have any value.
	at := func(i int, allowed ...byte) bool { return i >= len(first) || slices.Contains(allowed, first[i]) }
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
