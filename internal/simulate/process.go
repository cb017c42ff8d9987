package simulate

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
)

// process is the agents' process.
type process struct {
	cmd     *exec.Cmd
	orders  *gob.Encoder
	stdin   io.Closer
	updates chan update
	broken  chan error // receives one error when its stdout ends
	quit    chan struct{}
	reader  sync.WaitGroup
}

// startProcess starts this program with command as its arguments, which must make it call Agents.
func startProcess(ctx context.Context, command []string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Args, cmd.Stderr = command, os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the agents' process: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the agents' process: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the agents' process: %w", err)
	}
	p := &process{
		cmd: cmd, orders: gob.NewEncoder(stdin), stdin: stdin,
		updates: make(chan update, 64), broken: make(chan error, 1), quit: make(chan struct{}),
	}
	p.reader.Go(func() { p.read(stdout) })
	return p, nil
}

func (p *process) read(stdout io.Reader) {
	in := gob.NewDecoder(stdout)
	for {
		var n update
		if err := in.Decode(&n); err != nil {
			p.broken <- err
			return
		}
		select {
		case p.updates <- n:
		case <-p.quit:
			return
		}
	}
}

func (p *process) send(o order) error {
	if err := p.orders.Encode(o); err != nil {
		return fmt.Errorf("send an order to the agents' process: %w", err)
	}
	return nil
}

// add adds an update to those of the process.
func (p *process) add(n update) {
	select {
	case p.updates <- n:
	case <-p.quit:
	}
}

// receive returns the next update.
func (p *process) receive(ctx context.Context) (update, error) {
	select {
	case n := <-p.updates:
		return n, nil
	default:
	}
	select {
	case n := <-p.updates:
		return n, nil
	case err := <-p.broken:
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("it exited by itself")
		}
		return update{}, fmt.Errorf("the agents' process: %w", err)
	case <-ctx.Done():
		return update{}, context.Cause(ctx)
	}
}

// end ends the process, and the agents with it.
func (p *process) end() {
	close(p.quit)
	_ = p.stdin.Close()
	_ = p.cmd.Process.Kill()
	p.reader.Wait()
	_ = p.cmd.Wait()
}
