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

// memberVariable holds the memberConfig of a process with roleMember.
const memberVariable = "RPC_TEST_MEMBER"

// memberConfig configures a member.
type memberConfig struct {
	Name, Store string
	Devices     int // number of devices
	Maps        map[string]device.Map

	Rank, WorldSize int // of a static group
}

// memberReport is the reply to a command: what the member sees of the group, or the result of a call.
type memberReport struct {
	ID      int
	View    []rpc.WorkerInfo
	Reverse map[string]device.Map // without empty maps
	Devices []device.Device
	Kinds   []string // of the error of a call
	Err     string   // error of the call
}

// runMember joins the group and then answers each command on stdin with a report. It ends with stdin, or after the
// command "leave".
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

// handleCommand executes a command: "view"; "lacks NAME", which waits until the view lacks that member; "call NAME";
// "evicted", which waits for the eviction; or "leave".
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
				return memberReport{}, fmt.Errorf("%s is still a member: %w", name, ctx.Err())
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

// reportCall returns the report of a call.
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
