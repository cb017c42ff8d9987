package coord

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"
)

// torchPatience is how long a TCPStore may take to show itself.
const torchPatience = 500 * time.Millisecond

// examine adds to the error of a peer that does not answer an agent whether it is a torch TCPStore: that ends the
// connection of an agent, and never speaks first. A store of agents answers a TCPStore's questions too, and may have begun
// since, behind a proxy for instance: it alone answers an agent that asks again.
func (g *greeting) examine(ctx context.Context, err error) error {
	var obstacle *DialError
	if !g.curious || !errors.As(err, &obstacle) || obstacle.Obstacle != ObstacleSilent && obstacle.Obstacle != ObstacleClosed {
		return err
	}
	for _, try := range []struct {
		ask    string
		answer []byte // what it begins with; nil: anything
		size   int
	}{
		// VALIDATE with its magic number, and PING, which gives its own number back.
		{ask: "\x00\xce\xf7\x85\x3c\x0d\x21\x43\x65\x07", answer: []byte("\x21\x43\x65\x07"), size: 4},
		// GETNUMKEYS of the first generation: an i64, that is not large.
		{ask: "\x06", size: 8},
	} {
		got := g.ask(ctx, try.ask, try.size)
		if len(got) == try.size && (bytes.Equal(got, try.answer) || try.answer == nil && bytes.Equal(got[4:], make([]byte, 4))) {
			if !g.refusesAgents(ctx) {
				return err
			}
			return g.obstacle(ObstacleTorch, "a torch TCPStore is there, such as torchrun's or that of a job's workers", nil)
		}
	}
	return err
}

// refusesAgents tells whether a new connection of an agent is ended, or not answered, as the first was.
func (g *greeting) refusesAgents(ctx context.Context) bool {
	again := *g
	again.curious = false
	nc, _, err := again.talk(ctx, again.challenge)
	if err == nil {
		nc.Close()
		return false
	}
	obstacle, ok := errors.AsType[*DialError](err)
	return ok && (obstacle.Obstacle == ObstacleSilent || obstacle.Obstacle == ObstacleClosed)
}

// ask sends that on a new connection, and returns up to size bytes of the answer.
func (g *greeting) ask(ctx context.Context, question string, size int) []byte {
	ctx, cancel := context.WithTimeout(ctx, torchPatience)
	defer cancel()
	nc, err := g.connect(ctx)
	if err != nil {
		return nil
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(torchPatience))
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := io.WriteString(nc, question); err != nil {
		return nil
	}
	got := make([]byte, size)
	n, _ := io.ReadFull(nc, got) // a peer that is no TCPStore says less
	return got[:n]
}
