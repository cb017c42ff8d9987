package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/elasticrun/elasticrun/pkg/rpc"
)

// server owns the model: only the server changes, saves and measures it.
type server struct {
	options
	out        io.Writer
	digits     digits
	model      model
	checkpoint string // its path
	exchange   *exchange
}

func newServer(o options, images digits, out io.Writer) (*server, error) {
	s := &server{options: o, out: out, digits: images, checkpoint: filepath.Join(o.checkpointDir, "checkpoint.json")}
	if err := os.MkdirAll(o.checkpointDir, 0o755); err != nil {
		return nil, inputError{err}
	}
	var err error
	if s.model, err = loadModel(s.checkpoint); err != nil {
		return nil, inputError{err}
	}
	if s.model.Steps > o.steps {
		return nil, inputError{fmt.Errorf("the checkpoint in %s is at step %d, beyond --steps %d",
			o.checkpointDir, s.model.Steps, o.steps)}
	}
	s.exchange = newExchange(s.parameters(), o.worldSize-1)
	return s, nil
}

func (s *server) parameters() parameters {
	return parameters{Steps: s.model.Steps, Weights: s.model.Weights}
}

func (s *server) functions() (*rpc.Functions, error) { return serve(s.exchange) }

// work does the remaining steps. It calls no worker: trainers call its exchange.
func (s *server) work(ctx context.Context, _ *rpc.Group) error {
	begin := "starting without a checkpoint"
	if s.model.Steps > 0 {
		begin = fmt.Sprintf("continuing after step %d", s.model.Steps)
	}
	printLine(s.out, "attempt %d: a server and %d trainers, %d training images, %s",
		s.attempt, s.worldSize-1, len(s.digits.training.images), begin)
	for s.model.Steps < s.steps {
		if err := s.step(ctx); err != nil {
			return err
		}
	}
	return s.end()
}

func (s *server) step(ctx context.Context) error {
	if err := s.killIfRequested(s.model.Steps+1, s.out); err != nil {
		return err
	}
	gradients, err := s.exchange.collect(ctx)
	if err != nil {
		return err
	}
	s.model.step(gradients, len(s.digits.training.images))
	s.exchange.publish(s.parameters()) // trainers continue while the server saves and measures
	if s.model.Steps%s.checkpointEvery == 0 || s.model.Steps == s.steps {
		if err := s.model.save(s.checkpoint); err != nil {
			return err
		}
	}
	if s.model.Steps%s.reportEvery == 0 {
		loss, accuracy := s.measure()
		printLine(s.out, "step %3d  loss %.6f  test accuracy %.2f%%", s.model.Steps, loss, 100*accuracy)
	}
	return nil
}

// measure returns the mean loss on all training images and the accuracy on all test images.
func (s *server) measure() (loss, accuracy float64) {
	return s.digits.training.loss(s.model.Weights), s.digits.test.accuracy(s.model.Weights)
}

// end prints the result and writes it to result.txt in the checkpoint folder, with all digits of the loss.
func (s *server) end() error {
	loss, accuracy := s.measure()
	printLine(s.out, "final loss %.6f accuracy %.2f%%", loss, 100*accuracy)
	result := fmt.Sprintf("loss %v\naccuracy %.2f%%\nrestarts %d\n", loss, 100*accuracy, s.attempt)
	return replace(filepath.Join(s.checkpointDir, "result.txt"), []byte(result))
}
