package coord

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// DialOptions are the options of Dial.
type DialOptions struct {
	// Addr is the store's address, HOST:PORT. If Conn is set, Addr is only used in messages.
	Addr string
	// Conn makes a connection to the store. The client calls it again after the connection breaks. Nil connects by TCP
	// to Addr.
	Conn func(ctx context.Context) (net.Conn, error)
	// Version is elasticrun's version, which must equal the store's. Empty accepts any.
	Version string
	// RunID is the run that the store must serve. Empty accepts any.
	RunID string
	// Secret is the store's shared secret, or empty if the store has none.
	Secret []byte
	// TTL is the session's TTL, 50 ms to 24 h. 0 lets the store choose.
	TTL time.Duration
	// Timeout bounds the connect and the handshake of an attempt, each separately. 0 means 5 s.
	Timeout time.Duration
}

func (o *DialOptions) timeout() time.Duration { return cmp.Or(max(o.Timeout, 0), 5*time.Second) }

// established is a connection with a session.
type established struct {
	nc net.Conn
	in *bufio.Reader
	welcome
}

// attempt is one attempt to get a session.
type attempt struct {
	opts             *DialOptions
	token            string // of the session to resume
	end              bool   // end the session instead of resuming it
	instance         string // of the store; if already set, the store must have this one
	detectTorchStore bool   // if no store answers, find out whether a TCPStore does
	proofs           transcript
}

// open connects and runs the handshake.
func (a *attempt) open(ctx context.Context) (*established, error) {
	var w welcome
	nc, in, err := a.exchange(ctx, func(nc net.Conn, in *bufio.Reader) (err error) {
		w, err = a.handshake(nc, in)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &established{nc: nc, in: in, welcome: w}, nil
}

// exchange connects and calls say, both within the timeout. The returned connection has no deadline.
func (a *attempt) exchange(
	ctx context.Context, do func(net.Conn, *bufio.Reader) error,
) (net.Conn, *bufio.Reader, error) {
	nc, err := a.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	deadline := time.Now().Add(a.opts.timeout())
	nc.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	in := bufio.NewReaderSize(nc, readBuffer)
	err = do(nc, in)
	if !stop() {
		message := "it accepts connections, but had not answered when the attempt was canceled"
		err = a.dialError(ObstacleSilent, message, context.Cause(ctx))
	}
	if err != nil {
		nc.Close()
		return nil, nil, a.detectTorch(ctx, err)
	}
	nc.SetDeadline(time.Time{})
	return nc, in, nil
}

func (a *attempt) dialError(obstacle Obstacle, message string, err error) *DialError {
	return &DialError{Addr: a.opts.Addr, Obstacle: obstacle, Message: message, Err: err}
}

// connect makes the connection.
func (a *attempt) connect(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, a.opts.timeout())
	defer cancel()
	var nc net.Conn
	var err error
	if a.opts.Conn != nil {
		nc, err = a.opts.Conn(ctx)
	} else {
		nc, err = new(net.Dialer).DialContext(ctx, "tcp", a.opts.Addr)
	}
	var timeout interface{ Timeout() bool }
	switch {
	case err == nil:
		return nc, nil
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT): // a Unix socket that was removed
		return nil, a.dialError(ObstacleRefused, "nobody listens there", err)
	case errors.As(err, &timeout) && timeout.Timeout():
		return nil, a.dialError(ObstacleTimeout, "nothing answers there", err)
	}
	return nil, a.dialError(ObstacleConnect, "no connection is possible", err)
}

// handshake gets a session.
func (a *attempt) handshake(nc net.Conn, in *bufio.Reader) (w welcome, err error) {
	if err := a.challenge(nc, in); err != nil {
		return w, err
	}
	return a.join(nc, in)
}

// challenge is the first half of the handshake, up to the store's challenge.
func (a *attempt) challenge(nc net.Conn, in *bufio.Reader) error {
	a.proofs = transcript{secret: a.opts.Secret}
	h := hello{secret: len(a.opts.Secret) > 0, version: a.opts.Version, runID: a.opts.RunID, nonce: newNonce()}
	frame := h.append(nil)
	if len(frame) > maxHandshake {
		return fmt.Errorf("run id and version are too long: %d bytes", len(frame))
	}
	a.proofs.add(bodyOf(frame))
	if _, err := nc.Write(append(appendPreamble(nil), frame...)); err != nil {
		return a.noAnswer(err)
	}
	if err := a.readPreamble(in); err != nil {
		return err
	}
	body, err := a.readFrame(in, kindChallenge)
	if err != nil {
		return err
	}
	c, err := decodeChallenge(body)
	if err != nil {
		return a.protocolError(err)
	}
	if c.secret != h.secret {
		return a.refused(ReasonSecret, "only one of store and agent has a shared secret: give both the same secret")
	}
	before := a.instance
	a.instance = c.instance
	if before != "" && before != c.instance {
		return ErrReplaced
	}
	a.proofs.add(body)
	return nil
}

// join is the second half of the handshake.
func (a *attempt) join(nc net.Conn, in *bufio.Reader) (w welcome, err error) {
	j := join{ttl: int64(max(a.opts.TTL, 0)), token: a.token, end: a.end}
	j.proof = a.proofs.proof(sideAgent, bodyOf(j.append(nil)))
	frame := j.append(nil)
	if len(frame) > maxHandshake {
		return w, fmt.Errorf("the token is too long: %d bytes", len(a.token))
	}
	a.proofs.add(bodyOf(frame))
	if _, err := nc.Write(frame); err != nil {
		return w, a.noAnswer(err)
	}
	body, err := a.readFrame(in, kindWelcome)
	if err != nil {
		return w, err
	}
	if w, err = decodeWelcome(body); err != nil || w.instance != a.instance {
		return w, a.protocolError(errMalformed)
	}
	proof := w.proof
	w.proof = nil
	if !a.proofs.verifies(sideStore, bodyOf(w.append(nil)), proof) {
		return w, a.refused(ReasonSecret, "the store does not know the shared secret: do not trust it")
	}
	return w, nil
}

// readPreamble reads the store's preamble.
func (a *attempt) readPreamble(in *bufio.Reader) error {
	got, err := in.Peek(preambleSize)
	if n := min(len(got), len(magic)); string(got[:n]) != magic[:n] {
		got, _ = in.Peek(in.Buffered())
		return a.dialError(ObstacleForeign, describePeer(got), nil)
	}
	if err != nil {
		return a.noAnswer(err)
	}
	if v := binary.BigEndian.Uint16(got[len(magic):]); v != protocolVersion {
		// The store explains the mismatch in a refusal, whose format never changes.
		_, _ = in.Discard(preambleSize)
		_, err := a.readFrame(in, kindRefusal)
		if _, ok := errors.AsType[*RefusedError](err); !ok {
			err = a.refused(ReasonProtocol, fmt.Sprintf(
				"the store speaks version %d of the agents' protocol and the agent speaks version %d: "+
					"run the same elasticrun on all nodes", v, protocolVersion))
		}
		return err
	}
	a.detectTorchStore = false // a store is there
	_, err = in.Discard(preambleSize)
	return err
}

// readFrame reads a frame of kind want. It returns a refusal as an error.
func (a *attempt) readFrame(in *bufio.Reader, want kind) ([]byte, error) {
	k, body, err := readFrame(in, maxHandshake, make([]byte, frameHeader))
	switch {
	case errors.Is(err, errMalformed):
		return nil, a.protocolError(err)
	case err != nil:
		return nil, a.noAnswer(err)
	case k == kindRefusal:
		reason, message, err := decodeRefusal(body)
		if err != nil {
			return nil, a.protocolError(err)
		}
		return nil, a.refused(reason, message)
	case k != want:
		return nil, a.protocolError(errMalformed)
	}
	return body, nil
}

// refused returns the error for a refusal.
func (a *attempt) refused(reason Reason, message string) error {
	switch reason {
	case ReasonGone:
		return &wrapped{message, ErrSessionLost}
	case ReasonFull, ReasonClosing:
		return a.dialError(ObstacleBusy, message, nil)
	}
	return &RefusedError{Addr: a.opts.Addr, Reason: reason, Message: message}
}

func (a *attempt) protocolError(err error) error {
	return a.dialError(ObstacleForeign, "the server there does not follow the agents' protocol", err)
}

// noAnswer returns the error for a peer that sends nothing or closes the connection.
func (a *attempt) noAnswer(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		message := fmt.Sprintf("it accepts connections, but has not answered for %v", a.opts.timeout())
		return a.dialError(ObstacleSilent, message, nil)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return a.dialError(ObstacleClosed, "it closed the connection without an answer", err)
}

// describePeer describes a server that begins with got.
func describePeer(got []byte) string {
	for _, known := range []struct{ begin, name string }{
		{"HTTP/", "an HTTP server"}, {"SSH-", "an SSH server"}, {"\x15\x03", "a TLS server"}, {"-ERR", "a Redis server"},
	} {
		if bytes.HasPrefix(got, []byte(known.begin)) {
			return known.name + " is there, not a store"
		}
	}
	return fmt.Sprintf("a server that answers %q is there, not a store", got[:min(len(got), 32)])
}

// EndSession ends the session of a dead process by its [Client.Token]. The caller must know that nothing of the session
// is left: an agent's guard calls EndSession after it has reaped the job's last process. The store trusts any client
// with the token, and with the shared secret if there is one. EndSession ignores the TTL of opts.
//
// It makes one attempt, which may be repeated. A session that has already ended is not an error. Errors are those of
// [Dial].
func EndSession(ctx context.Context, opts DialOptions, token string) error {
	a := attempt{opts: &opts, token: token, end: true}
	got, err := a.open(ctx)
	switch {
	case errors.Is(err, ErrSessionLost):
		return nil
	case err != nil:
		return err
	}
	return got.nc.Close()
}
