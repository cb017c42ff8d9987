package group

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/coord"
)

// call is one operation of a client: it reads a key, or writes it if write is set.
type call struct {
	key   int
	write string
}

// registers is a store of independent values.
var registers = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := make([][]porcupine.Operation, keys)
		for _, op := range history {
			key := op.Input.(call).key
			parts[key] = append(parts[key], op)
		}
		return parts
	},
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		if c := input.(call); c.write != "" {
			return true, c.write
		}
		return output == state, state
	},
}

const keys = 2

// history records the operations that the clients of a test have seen.
type history struct {
	began time.Time

	mu  sync.Mutex
	ops []porcupine.Operation
}

// never is the return time of an operation whose outcome is unknown.
const never = time.Duration(1 << 62)

func (h *history) add(client int, c call, output any, from, to time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{
		ClientId: client, Input: c, Output: output, Call: int64(from), Return: int64(to),
	})
}

// run makes calls as one client until ctx ends.
func (h *history) run(ctx context.Context, t *testing.T, number int, c coord.Store, random *rand.Rand) {
	t.Helper()
	for i := 0; ctx.Err() == nil; i++ {
		time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond) //nolint:forbidigo // the bubble's time
		op := call{key: random.IntN(keys)}
		name := fmt.Sprint("key", op.key)
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		from := time.Since(h.began)
		if random.IntN(2) == 0 {
			op.write = fmt.Sprintf("%d of %d", i, number)
			_, err := c.Commit(bounded, nil, []coord.Op{{Key: name, Value: []byte(op.write)}})
			switch {
			case err == nil:
				h.add(number, op, nil, from, time.Since(h.began))
			case errors.Is(err, coord.ErrUnavailable):
				h.add(number+1000*(i+1), op, nil, from, never) // it may still happen
			default:
				t.Errorf("commit: %v", err)
			}
		} else if value, ok := read(bounded, c, name); ok {
			h.add(number, op, value, from, time.Since(h.began))
		}
		cancel()
		if err := c.Err(); err != nil {
			t.Errorf("client %d has lost its session: %v", number, err)
			return
		}
	}
}

// read returns the value of a key. It waits while the store is not available.
func read(ctx context.Context, c coord.Store, key string) (value string, ok bool) {
	enough := errors.New("enough")
	err := c.Watch(ctx, key, func(b coord.Batch) error {
		for _, e := range b.Events {
			value = string(e.Value)
		}
		return enough
	})
	return value, errors.Is(err, enough)
}

// TestLinearizable lets clients read and write while members are killed, leave, stop for a while and are cut off, and
// while servers end. It checks that the results are those of one store.
func TestLinearizable(t *testing.T) {
	seeds := testenv.Repeat(t, 2, 500)
	if testenv.Race { // make soak has all seeds without the race detector
		seeds = max(1, seeds/10)
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { checkLinearizable(t, uint64(seed)) })
		})
	}
}

func checkLinearizable(t *testing.T, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 0))
	n := newNetwork(t, Options{})
	addrs := n.found("member0:1", "member1:1", "member2:1")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h := &history{began: time.Now()}
	var running sync.WaitGroup
	var clients []*coord.Client
	for i := range 3 {
		name := fmt.Sprint("client", i)
		c := n.client(name, 5*time.Minute, addrs...)
		clients = append(clients, c)
		source := rand.New(rand.NewPCG(seed, uint64(i+1)))
		running.Go(func() { h.run(ctx, t, i, c, source) })
	}
	for ctx.Err() == nil {
		time.Sleep(time.Second + time.Duration(random.IntN(3000))*time.Millisecond) //nolint:forbidigo // the bubble's time
		// There is one member more than voters, so that it can replace a lost voter.
		addrs = n.grow(addrs, clients...)
		n.awaitSpare()
		victim := n.leader()
		if voters := n.members[victim].Status().Voters; random.IntN(2) == 0 {
			victim = voters[random.IntN(len(voters))]
		}
		if n.members[victim] == nil {
			continue // the victim is gone, and the leader has not noticed yet
		}
		switch random.IntN(5) {
		case 0:
			n.kill(victim)
		case 1:
			if err := n.members[victim].Leave(t.Context()); err != nil {
				t.Errorf("leave: %v", err)
			}
			n.kill(victim)
		case 2:
			reach := []string{"client0", "client1", "client2"}[:random.IntN(4)] // these clients cannot reach the victim either
			heal := n.isolate(victim, reach...)
			time.Sleep(time.Duration(random.IntN(4000)) * time.Millisecond) //nolint:forbidigo // the bubble's time
			heal()
		case 3: // the victim's replica stops, not its server
			pause := time.Duration(random.IntN(5000)) * time.Millisecond
			n.members[victim].call(func() { time.Sleep(pause) }) //nolint:forbidigo // the bubble's time
			time.Sleep(pause)                                    //nolint:forbidigo // the bubble's time
		case 4: // the victim's server ends, not its term, while writes are on their way to the others
			n.failServer(victim, random)
		}
	}
	running.Wait()
	for _, c := range clients {
		closeClient(t, c)
	}
	result := porcupine.CheckOperationsTimeout(registers, h.ops, 0)
	t.Logf("%d operations with %d members", len(h.ops), len(addrs))
	if result != porcupine.Ok || len(h.ops) < 100 {
		t.Errorf("the history of %d operations is %s", len(h.ops), result)
	}
}

// failServer ends the server of a member that leads while the other replicas stop for a moment.
func (n *network) failServer(addr string, random *rand.Rand) {
	n.t.Helper()
	var others []string
	for other := range n.members {
		if other != addr {
			others = append(others, other)
		}
	}
	release := n.hold(others...)
	time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond) //nolint:forbidigo // the bubble's time
	m := n.members[addr]
	m.call(func() {
		if s := m.serving; s != nil && s.server != nil {
			s.server.Fail(errors.New("the test ends it"))
		}
	})
	time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond) //nolint:forbidigo // the bubble's time
	release()
}
