package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"
)

const (
	// fetchBound is how long an agent may take to answer; maxAnswer is what it may say at most, in bytes.
	fetchBound = 5 * time.Second
	maxAnswer  = 16 << 20
)

// Fetch asks the agent whose --status-addr is addr, HOST:PORT. Its error says in one line what is there instead.
func Fetch(ctx context.Context, addr string) (Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchBound)
	defer cancel()
	var s Snapshot
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/status", nil)
	if err != nil {
		return s, err
	}
	client := &http.Client{Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true, DialContext: new(net.Dialer).DialContext}}
	res, err := client.Do(req)
	if err != nil {
		return s, why(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return s, fmt.Errorf("it answers %q: no agent's --status-addr is there", res.Status)
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return s, why(err)
	}
	return parse(data)
}

// parse reads a Snapshot.
func parse(data []byte) (Snapshot, error) {
	var s Snapshot
	if err := json.Unmarshal(data, &s); err != nil || s.Schema < 1 || s.State == "" {
		return Snapshot{}, errors.New("it answers, but not as an agent does")
	}
	return s, nil
}

// why says in a few words why nobody answers.
func why(err error) error {
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return errors.New("nobody listens there: give the --status-addr of a job that runs")
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("no answer within %v", fetchBound)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return errors.New("it ends the connection without an answer")
	}
	return err
}
