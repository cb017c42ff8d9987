package coord

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/coord/certfiles"
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
	// Role is what the client is for. The zero value is RoleAgent.
	Role Role
	// RunID is the run that the store must serve. Empty accepts any.
	RunID string
	// Secret is the store's shared secret, or empty if the store has none.
	Secret []byte
	// Certificates are the site's certificates, or nil if there are none.
	Certificates *certfiles.Set
	// ServerNames are the accepted names if Certificates has a CA: the store's certificate must have one of them. None
	// means Addr's host. AnyName accepts each certificate of the CA. It is for the address of an agent that the store
	// itself has named: that agent has already shown a certificate of the CA, for a name that others need not know.
	ServerNames []string
	AnyName     bool
	// Verify, if not nil, is called with each connection after a store has answered the handshake and before any of the
	// store's data is used. An error makes the attempt fail, as if the server were no store.
	Verify func(net.Conn) error
	// TTL is the session's TTL, 50 ms to 24 h. 0 lets the store choose.
	TTL time.Duration
	// Timeout bounds the connect and the handshake of an attempt, each separately. A store that is busy with the
	// handshakes of others may extend it. 0 means 5 s.
	Timeout time.Duration
	// Adapt, if not nil, changes a copy of these options for another address at which the store may be. The copy already
	// has that Addr and no Conn.
	Adapt func(other *DialOptions)
	// MaxWait is how long in all such a busy store may make Dial wait. Anybody at the address can claim to be busy, so a
	// caller with other addresses should not wait long. 0 means 10 minutes. A reconnect always uses 10 minutes.
	MaxWait time.Duration
}

func (o *DialOptions) timeout() time.Duration { return cmp.Or(max(o.Timeout, 0), 5*time.Second) }

// established is a connection with a session.
type established struct {
	addr string
	nc   net.Conn
	welcome
}

// attempt is one attempt to get a session.
type attempt struct {
	opts             *DialOptions
	token            string // of the session to resume
	end              bool   // end the session of token instead of resuming it
	instance         string // the store's instance id; if already set, the store must have this one
	detectTorchStore bool   // if no store answers, find out whether a TCPStore does
	proofs           transcript
	proved           bool // the store has proved that it knows the secret, if there is one
	verified         bool // the store has shown a certificate of the CA, if the client has one
}

// open connects and runs the handshake.
func (a *attempt) open(ctx context.Context) (*established, error) {
	var w welcome
	nc, err := a.exchange(ctx, func(nc net.Conn) (err error) {
		w, err = a.handshake(nc)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &established{addr: a.opts.Addr, nc: nc, welcome: w}, nil
}

// exchange connects and calls do, both within the timeout. The returned connection has no deadline.
func (a *attempt) exchange(ctx context.Context, do func(net.Conn) error) (net.Conn, error) {
	nc, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(a.opts.timeout())
	nc.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	secure, err := a.secure(ctx, nc)
	if err == nil {
		err = do(secure)
	}
	if (err == nil || servedAt(err) != "") && a.opts.Verify != nil {
		if problem := a.opts.Verify(nc); problem != nil {
			err = a.dialError(ObstacleForeign, problem.Error(), nil)
		}
	}
	if !stop() {
		message := "it accepts connections, but had not answered when the attempt was canceled"
		err = a.dialError(ObstacleSilent, message, context.Cause(ctx))
	}
	if err != nil {
		nc.Close()
		return nil, a.detectTorch(ctx, err)
	}
	nc.SetDeadline(time.Time{})
	return secure, nil
}

// secure runs the TLS handshake.
func (a *attempt) secure(ctx context.Context, nc net.Conn) (*secureConn, error) {
	var problem error // a problem with the preamble; crypto/tls wraps it
	check := func() (first byte, err error) {
		if problem = a.readPreamble(nc); problem == nil {
			first, problem = a.awaitTurn(ctx, nc)
		}
		return first, problem
	}
	below := &preambleConn{Conn: nc, unsent: appendPreamble(nil), check: check}
	config, verifies := clientConfig(a.opts)
	c := &secureConn{Conn: tls.Client(below, config), nc: nc}
	err := c.HandshakeContext(context.WithoutCancel(ctx)) // exchange ends it, without an extra goroutine
	if why := certificateProblem(err); why != "" {
		return c, a.refused(ReasonStoreCertificate, why)
	}
	_, network := errors.AsType[net.Error](err)
	switch {
	case err == nil:
	case problem != nil:
		return c, problem
	case network, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe):
		return c, a.noAnswer(err)
	default:
		return c, a.protocolError(err)
	}
	a.verified = verifies
	binding, err := c.binding()
	if err != nil {
		return c, fmt.Errorf("bind the handshake to the TLS connection: %w", err)
	}
	a.proofs = transcript{secret: a.opts.Secret, binding: binding}
	return c, nil
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
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT): // ENOENT: a Unix socket that was removed
		return nil, a.dialError(ObstacleRefused, "nobody listens there", err)
	case errors.As(err, &timeout) && timeout.Timeout():
		return nil, a.dialError(ObstacleTimeout, "nothing answers there", err)
	}
	return nil, a.dialError(ObstacleConnect, "no connection is possible", err)
}

// handshake gets a session.
func (a *attempt) handshake(nc net.Conn) (w welcome, err error) {
	if err := a.challenge(nc); err != nil {
		return w, err
	}
	return a.join(nc)
}

// challenge is the first half of the handshake, up to the store's challenge.
func (a *attempt) challenge(nc net.Conn) error {
	h := hello{secret: len(a.opts.Secret) > 0, role: a.opts.Role, version: a.opts.Version, runID: a.opts.RunID}
	frame := h.append(nil)
	if len(frame) > maxHandshake {
		return fmt.Errorf("run id and version are too long: %d bytes", len(frame))
	}
	a.proofs.add(bodyOf(frame))
	if _, err := nc.Write(frame); err != nil {
		if _, last := nc.Read(make([]byte, 1)); certificateAlert(last) != "" { // the alert was sent before the store hung up
			err = last
		}
		return a.noAnswer(err)
	}
	body, err := a.readFrame(nc, kindChallenge)
	if err != nil {
		return err
	}
	c, err := decodeChallenge(body)
	if err != nil {
		return a.protocolError(err)
	}
	if c.secret != h.secret {
		return a.refused(ReasonSecret, "only one of store and agent has a shared secret: "+sameSecret)
	}
	proof := c.proof
	c.proof = nil
	if !a.proofs.verifies(sideStore, bodyOf(c.append(nil)), proof) {
		// This frame tells the store only why the client leaves.
		_, _ = nc.Write(appendRefusal(nil, ReasonSecret, ""))
		return a.refused(ReasonSecret, "the store's shared secret differs from the agent's: "+sameSecret)
	}
	a.proved = true
	a.proofs.add(body)
	before := a.instance
	a.instance = c.instance
	if before != "" && before != c.instance {
		return ErrReplaced
	}
	return nil
}

// join is the second half of the handshake.
func (a *attempt) join(nc net.Conn) (w welcome, err error) {
	j := join{ttl: int64(max(a.opts.TTL, 0)), token: a.token, end: a.end}
	j.proof = a.proofs.proof(sideAgent, bodyOf(j.append(nil)))
	frame := j.append(nil)
	if len(frame) > maxHandshake {
		return w, fmt.Errorf("the token is too long: %d bytes", len(a.token))
	}
	if _, err := nc.Write(frame); err != nil {
		return w, a.noAnswer(err)
	}
	body, err := a.readFrame(nc, kindWelcome)
	if err != nil {
		return w, err
	}
	if w, err = decodeWelcome(body); err != nil || w.instance != a.instance {
		return w, a.protocolError(errMalformed)
	}
	return w, nil
}

// readPreamble reads the store's preamble. It reads no further unless the store speaks another version.
func (a *attempt) readPreamble(in io.Reader) error {
	got := make([]byte, preambleSize)
	n, err := io.ReadFull(in, got)
	if common := min(n, len(magic)); string(got[:common]) != magic[:common] {
		return a.dialError(ObstacleForeign, describePeer(got[:n]), nil)
	}
	if err != nil {
		return a.noAnswer(err)
	}
	a.detectTorchStore = false // a store is there
	v := binary.BigEndian.Uint16(got[len(magic):])
	if v == protocolVersion {
		return nil
	}
	// The store explains the mismatch in a refusal in the clear, whose format never changes.
	_, err = a.readFrame(in, kindRefusal)
	if _, ok := errors.AsType[*RefusedError](err); !ok {
		err = a.refused(ReasonProtocol, fmt.Sprintf(
			"the store speaks version %d of the agents' protocol and the agent speaks version %d: "+
				"run the same elasticrun on all nodes", v, protocolVersion))
	}
	return err
}

// maxWait is the default of DialOptions.MaxWait.
const maxWait = 10 * time.Minute

// awaitTurn reads the wait bytes that may follow the preamble. It returns the first other byte. Each wait byte restarts
// the time limit, unless ctx has ended.
func (a *attempt) awaitTurn(ctx context.Context, nc net.Conn) (byte, error) {
	first := make([]byte, 1)
	for end := time.Now().Add(cmp.Or(a.opts.MaxWait, maxWait)); time.Now().Before(end); {
		if _, err := io.ReadFull(nc, first); err != nil {
			return 0, a.noAnswer(err)
		}
		if first[0] != waitByte {
			return first[0], nil
		}
		nc.SetDeadline(time.Now().Add(a.opts.timeout()))
		if ctx.Err() != nil { // exchange may have set its deadline before this one
			nc.SetDeadline(time.Unix(1, 0))
		}
	}
	return 0, a.dialError(ObstacleSilent, "it is too busy for another agent", nil)
}

// readFrame reads a frame of kind want. It returns a refusal as an error.
func (a *attempt) readFrame(in io.Reader, want kind) ([]byte, error) {
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
		if !a.proved && reason != ReasonSecret && reason != ReasonProtocol {
			return nil, a.protocolError(errMalformed) // only after its proof may a store refuse for another reason
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
		return fmt.Errorf("%w: %s", ErrSessionLost, message)
	case ReasonFull, ReasonClosing:
		return a.dialError(ObstacleBusy, message, nil)
	case ReasonElsewhere: // readFrame has checked the proof of the member
		err := a.dialError(ObstacleElsewhere, message, nil)
		if err.servedAt = addrInMessage(message); err.Waits() {
			err.Message = "the node there waits for others to begin the job's store"
		}
		return err
	}
	return &RefusedError{Addr: a.opts.Addr, Reason: reason, Message: message}
}

func (a *attempt) protocolError(err error) error {
	return a.dialError(ObstacleForeign, "the server there does not follow the agents' protocol", err)
}

// noAnswer returns the error for a peer that sends nothing or closes the connection.
func (a *attempt) noAnswer(err error) error {
	if alert := certificateAlert(err); alert != "" {
		return a.rejected(alert)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		message := fmt.Sprintf("it accepts connections, but has not answered for %s", seconds.Format(a.opts.timeout()))
		return a.dialError(ObstacleSilent, message, nil)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return a.dialError(ObstacleClosed, "it closed the connection without an answer", err)
}

// describePeer describes a server whose first bytes are got.
func describePeer(got []byte) string {
	for _, known := range []struct{ begin, name string }{
		{"HTTP/", "an HTTP server"}, {"SSH-", "an SSH server"}, {"\x15\x03", "a TLS server"}, {"-ERR", "a Redis server"},
	} {
		if bytes.HasPrefix(got, []byte(known.begin)) {
			return known.name + " is there, not a store"
		}
	}
	return fmt.Sprintf("a server that answers %q is there, not a store", got)
}
