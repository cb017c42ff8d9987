package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// runRole runs one end of a watch, which prints its progress, and returns the exit code.
func runRole(role, addr string) int {
	end := map[string]func(string) error{"server": runServer, "client": runClient}[role]
	if err := end(addr); err != nil {
		fmt.Fprintln(os.Stderr, role, err)
		return 1
	}
	return 0
}

func runServer(addr string) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	lost := make(chan error)
	s := Serve(ln, ServerOptions{Handle: echo, Watched: func([]byte) (func(error), error) {
		fmt.Println("watched")
		return func(err error) { lost <- err }, nil
	}})
	defer s.Close()
	fmt.Println("listening")
	return isLoss("lost", <-lost)
}

func runClient(addr string) error {
	p := NewPool(ClientOptions{})
	defer p.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := p.Watch(ctx, addr, []byte("x"), func() { fmt.Println("begun") })
	if err := isLoss("lost", err); err != nil {
		return err
	}
	_, err = p.Call(ctx, addr, []byte("x"))
	return isLoss("unreachable", err)
}

// isLoss prints word if err is a lost connection, and otherwise returns an error.
func isLoss(word string, err error) error {
	if !errors.Is(err, ErrConnection) {
		return fmt.Errorf("got %w, want %w", err, ErrConnection)
	}
	fmt.Println(word)
	return nil
}
