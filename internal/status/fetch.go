package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
)

const (
	// fetchTimeout bounds an agent's reply, maxReply its size in bytes.
	fetchTimeout = 5 * time.Second
	maxReply     = 16 << 20
)

// Fetch requests the status of the agent whose --status-addr is addr, HOST:PORT. Its error is one line.
func Fetch(ctx context.Context, addr string) (Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	var s Snapshot
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/status", nil)
	if err != nil {
		return s, err
	}
	data, err := roundTrip(req, new(net.Dialer).DialContext)
	if err != nil {
		return s, describe(err)
	}
	return parse(data)
}

// roundTrip sends a request over a connection of its own and returns the reply.
func roundTrip(
	req *http.Request, dial func(ctx context.Context, network, addr string) (net.Conn, error),
) ([]byte, error) {
	var ended atomic.Bool
	watched := func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return &watchedConn{Conn: c, ended: &ended}, err
	}
	client := &http.Client{
		Transport:     &http.Transport{Proxy: nil, DisableKeepAlives: true, DialContext: watched},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // no agent redirects
	}
	res, err := client.Do(req)
	if err != nil && ended.Load() {
		err = io.EOF
	}
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the reply is %q: this is not the --status-addr of an agent", res.Status)
	}
	return io.ReadAll(io.LimitReader(res.Body, maxReply))
}

// watchedConn is a connection that records whether the other end has closed it without a reply. If that happens before
// the request is sent, package http returns an error that it does not export.
type watchedConn struct {
	net.Conn
	ended *atomic.Bool
}

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.ended.Store(n == 0 && errors.Is(err, io.EOF))
	return n, err
}

// closedSilently reports whether err means that the other end has closed the connection without a reply.
func closedSilently(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// parse decodes a Snapshot.
func parse(data []byte) (Snapshot, error) {
	var s Snapshot
	if err := json.Unmarshal(data, &s); err != nil || s.Schema < 1 || s.State == "" {
		return Snapshot{}, errors.New("the reply is not the status of an agent")
	}
	return s, nil
}

// errNotListening is the error of a request to an address at which nothing listens.
var errNotListening = errors.New("nothing listens there: give the --status-addr of a running job")

// describe turns an error of net/http into one for people.
func describe(err error) error {
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return errNotListening
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("no reply within %s", seconds.Format(fetchTimeout))
	case closedSilently(err):
		return errors.New("the connection was closed without a reply")
	}
	return err
}
