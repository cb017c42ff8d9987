package coord

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// A client without a session may be anybody, so it must not cost much. It has HandshakeTimeout for the preamble and the
// first message of TLS, and the same time again after its turn begins. It may send handshakeBytes in all. Its messages
// are read before TLS allocates anything for the client. The main cost of a handshake is computing, and clients take
// turns to compute. So the whole ClientHello must arrive before the turn: in one record, and with a key for the only
// supported key exchange.

const (
	// handshakeBytes is how much a client may send before it has a session: a ClientHello, the end of the TLS handshake,
	// and two frames of at most maxHandshake.
	handshakeBytes = 4 << 10
	// certificateBytes is how much more the client may send if the store requires a certificate.
	certificateBytes = 16 << 10
)

// handshakeLimit returns the limit for a client without a session.
func handshakeLimit(config *tls.Config) recordLimit {
	if config.ClientAuth != tls.NoClientCert {
		return recordLimit{left: handshakeBytes + certificateBytes}
	}
	return recordLimit{left: handshakeBytes}
}

// recordLimit bounds the bytes of a stream of TLS records. It also refuses a record whose header claims more than the
// remaining bytes: crypto/tls allocates the claimed size, up to 16 KiB, before any of the record's data has arrived. It
// also refuses handshake messages in the clear after the first record: the rest of a ClientHello, or a second one after
// a HelloRetryRequest.
type recordLimit struct {
	left int // bytes that may still arrive
	body int // bytes of the current record that have not arrived yet
	have int // bytes of the next record's header that are in head
	head [recordHeader]byte
	past bool // the first record has begun
}

// clearHandshake is the type of a record with handshake messages that are not encrypted.
const clearHandshake = 22

// recordHeader is the size of a TLS record's header: type, version and length.
const recordHeader = 5

// take counts the next bytes of the stream.
func (l *recordLimit) take(b []byte) error {
	if len(b) > l.left {
		return fmt.Errorf("%w: too many bytes before the handshake's end", errMalformed)
	}
	l.left -= len(b)
	for len(b) > 0 {
		if l.body > 0 {
			n := min(l.body, len(b))
			l.body, b = l.body-n, b[n:]
			continue
		}
		n := copy(l.head[l.have:], b)
		l.have, b = l.have+n, b[n:]
		if l.have < recordHeader {
			return nil
		}
		if l.past && l.head[0] == clearHandshake {
			return fmt.Errorf("%w: a second record in the clear", errMalformed)
		}
		l.past = true
		l.have, l.body = 0, int(binary.BigEndian.Uint16(l.head[3:]))
		if l.body > len(b)+l.left {
			return fmt.Errorf("%w: a record of %d bytes before the handshake's end", errMalformed, l.body)
		}
	}
	return nil
}

// limitedConn is the store's side of a connection, below TLS. Only the goroutine that reads may use the fields.
type limitedConn struct {
	net.Conn
	unsent  []byte       // the preamble until it has been sent
	begin   []byte       // bytes that were read, but not by TLS yet
	limit   *recordLimit // nil when the client has a session
	barren  int          // bytes read since TLS last returned data to its reader
	endTurn func()       // ends the turn of the handshake; nil without a turn
}

// readBegin reads the first record, so that TLS finds it without waiting.
func (c *limitedConn) readBegin() error {
	header := make([]byte, recordHeader)
	if _, err := io.ReadFull(c.Conn, header); err != nil {
		return err
	}
	if err := c.limit.take(header); err != nil {
		return err
	}
	c.begin = append(header, make([]byte, c.limit.body)...)
	if _, err := io.ReadFull(c.Conn, c.begin[recordHeader:]); err != nil {
		return err
	}
	return c.limit.take(c.begin[recordHeader:])
}

// stopTurn ends the turn, if there is one. TLS has finished computing when it calls Read or Write.
func (c *limitedConn) stopTurn() {
	if c.endTurn != nil {
		c.endTurn()
		c.endTurn = nil
	}
}

func (c *limitedConn) Read(b []byte) (int, error) {
	if len(c.begin) > 0 {
		n := copy(b, c.begin)
		if c.begin = c.begin[n:]; len(c.begin) == 0 {
			c.begin = nil
		}
		return n, nil
	}
	c.stopTurn()
	if c.limit == nil && c.barren >= maxRecord {
		return 0, fmt.Errorf("%w: a TLS message without data", errMalformed)
	}
	n, err := c.Conn.Read(b)
	c.barren += n
	if c.limit != nil {
		if err := c.limit.take(b[:n]); err != nil {
			return 0, err
		}
	}
	return n, err
}

// maxRecord is the size of the largest TLS record of a client with a session. Only in a handshake message does TLS read
// more bytes than this without data for its reader, and it would keep up to 256 KiB of such a message. No client sends
// one.
const maxRecord = recordHeader + 16<<10 + 256

// servedConn is the store's side of a TLS connection.
type servedConn struct {
	secureConn
	below *limitedConn
}

func (c *servedConn) Read(b []byte) (int, error) {
	n, err := c.secureConn.Read(b)
	if n > 0 {
		c.below.barren = 0
	}
	return n, err
}

func (c *limitedConn) Write(b []byte) (int, error) {
	c.stopTurn()
	if c.unsent == nil {
		return c.Conn.Write(b)
	}
	n, err := c.Conn.Write(append(c.unsent, b...))
	n, c.unsent = max(0, n-len(c.unsent)), nil
	return n, err
}

// waitByte may follow the store's preamble any number of times: the client has to wait for its turn. No TLS record
// begins with this byte.
const waitByte = 0

// waitInterval is the time between two wait bytes.
const waitInterval = time.Second

// errShed ends the handshake of a client that has lost its place to another client.
var errShed = errors.New("another client needs the place")

// awaitTurn waits until the handshake may compute. Without turns, the handshakes of a large job's agents would share
// the processors. All would end late, perhaps too late for their clients. With turns they end one after the other. The
// server asks the client to wait, so that the client's own time limit does not pass.
func (c *conn) awaitTurn(below *limitedConn) error {
	s := c.server
	ticker := time.NewTicker(waitInterval)
	defer ticker.Stop()
	for {
		select {
		case s.turns <- struct{}{}:
			below.endTurn = func() { <-s.turns }
			c.nc.SetDeadline(time.Now().Add(s.opts.HandshakeTimeout))
			return nil
		case <-ticker.C:
			c.nc.SetDeadline(time.Now().Add(s.opts.HandshakeTimeout))
			if _, err := below.Write([]byte{waitByte}); err != nil {
				return err
			}
		case <-c.shed:
			return errShed
		case <-s.stop:
			return ErrServerClosed
		}
	}
}

// drainBytes is how much drain reads.
const drainBytes = 4 << 10

// drain ends a refused connection so that the client can read the refusal. The system resets a connection that is
// closed with unread data, and a reset destroys the data that the client has not read yet.
func (c *conn) drain() {
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	c.nc.SetReadDeadline(time.Now().Add(exitNoticeTimeout))
	_, _ = io.CopyN(io.Discard, c.nc, drainBytes)
}
