package rpc_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
	"github.com/elasticrun/elasticrun/pkg/rpc"
	"github.com/elasticrun/elasticrun/pkg/rpc/device"
)

// memberVariable holds the memberConfig of a process in roleMember.
const memberVariable = "RPC_TEST_MEMBER"

// memberConfig says who a member is.
type memberConfig struct {
	Name, Store string
	Devices     int // their number
	Maps        map[string]device.Map

	Rank, WorldSize int // of a static group
}

// memberReport is a member's answer to a line: what it sees of the group, or what came of a call.
type memberReport struct {
	ID      int
	View    []rpc.WorkerInfo
	Reverse map[string]device.Map // only those that it has
	Devices []device.Device
	Kinds   []string // of a call's error
	Err     string   // the call's error
}

// runMember joins, and then answers each line on stdin with a report. Its end is that of stdin, or the line "leave".
func runMember() error {
	var cfg memberConfig
	if err := json.Unmarshal([]byte(os.Getenv(memberVariable)), &cfg); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	store, err := tcpstore.Dial(ctx, cfg.Store, tcpstore.ClientOptions{})
	if err != nil {
		return err
	}
	defer store.Close()
	fns, err := workerFunctions(cfg.Name+"/", false)
	if err != nil {
		return err
	}
	g, err := rpc.Init(ctx, rpc.Config{
		Name: cfg.Name, Store: store, Rank: cfg.Rank, WorldSize: cfg.WorldSize, Functions: []*rpc.Functions{fns},
		Options: &rpc.GRPCOptions{DeviceCount: cfg.Devices, DeviceMaps: cfg.Maps},
	})
	if err != nil {
		return err
	}
	defer g.Close()
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(reportOf(g)); err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		report, err := handleCommand(g, in.Text())
		if err != nil {
			return err
		}
		if err := out.Encode(report); err != nil {
			return err
		}
	}
	return g.Close()
}

// obey does what a line says: view; lacks NAME, which waits until the view does; call NAME; evicted, which waits for that; leave.
func handleCommand(g *rpc.Group, line string) (memberReport, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	word, name, _ := strings.Cut(line, " ")
	switch word {
	case "view":
	case "lacks":
		for has(g, name) {
			select {
			case <-g.View().Changed:
			case <-ctx.Done():
				return memberReport{}, fmt.Errorf("%s is still there: %w", name, ctx.Err())
			}
		}
	case "call":
		short, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err := where.Call(short, g, name, struct{}{})
		return reportCall(err), nil
	case "evicted":
		select {
		case <-g.Done():
		case <-ctx.Done():
			return memberReport{}, fmt.Errorf("not evicted: %w", ctx.Err())
		}
		_, err := where.Call(ctx, g, g.Self().Name, struct{}{})
		return reportCall(err), nil
	case "leave":
		return memberReport{}, g.Shutdown(ctx)
	default:
		return memberReport{}, fmt.Errorf("unknown command %q", line)
	}
	return reportOf(g), nil
}

func has(g *rpc.Group, name string) bool {
	_, there := g.Worker(name)
	return there
}

func reportOf(g *rpc.Group) memberReport {
	r := memberReport{ID: g.Self().ID, View: g.View().Workers, Devices: g.Devices(), Reverse: map[string]device.Map{}}
	for _, w := range r.View {
		if back := g.ReverseDeviceMap(w.Name); len(back) > 0 {
			r.Reverse[w.Name] = back
		}
	}
	return r
}

// called reports a call's end.
func reportCall(err error) memberReport {
	if err == nil {
		return memberReport{}
	}
	r := memberReport{Err: err.Error()}
	for _, kind := range []error{rpc.ErrEvicted, rpc.ErrConnection, rpc.ErrTimeout, rpc.ErrUnknownWorker} {
		if errors.Is(err, kind) {
			r.Kinds = append(r.Kinds, kind.Error())
		}
	}
	return r
}

func (r memberReport) is(kinds ...error) bool {
	return slices.ContainsFunc(kinds, func(kind error) bool { return slices.Contains(r.Kinds, kind.Error()) })
}
