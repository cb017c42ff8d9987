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
	cmd    *exec.Cmd
	orders *gob.Encoder
	stdin  io.Closer
	heard  chan news
	broken chan error // receives one error when its stdout ends
	quit   chan struct{}
	reader sync.WaitGroup
}

// startProcess starts command, which is to call Agents.
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
		heard: make(chan news, 64), broken: make(chan error, 1), quit: make(chan struct{}),
	}
	p.reader.Go(func() { p.read(stdout) })
	return p, nil
}

func (p *process) read(stdout io.Reader) {
	in := gob.NewDecoder(stdout)
	for {
		var n news
		if err := in.Decode(&n); err != nil {
			p.broken <- err
			return
		}
		select {
		case p.heard <- n:
		case <-p.quit:
			return
		}
	}
}

func (p *process) send(o order) error {
	if err := p.orders.Encode(o); err != nil {
		return fmt.Errorf("the agents' process has ended: %w", err)
	}
	return nil
}

// hear returns what the process says next.
func (p *process) hear(ctx context.Context) (news, error) {
	select {
	case n := <-p.heard:
		return n, nil
	default:
	}
	select {
	case n := <-p.heard:
		return n, nil
	case err := <-p.broken:
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("it ended on its own")
		}
		return news{}, fmt.Errorf("the agents' process: %w", err)
	case <-ctx.Done():
		return news{}, context.Cause(ctx)
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
