package telemetry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/stacks"
	"github.com/elasticrun/elasticrun/pkg/agent"
)

// maxStackLines is how many lines of stacks the console shows at once.
const maxStackLines = 20

// stacksFile is the file in the log folder that gets all stacks that were shown, without a limit.
const stacksFile = "stacks.log"

var _ agent.Stacks = (*Telemetry)(nil)

// Show implements agent.Stacks. It prints the main threads on the console, in at most maxStackLines lines. It writes
// all threads with their whole stacks to the log folder, if the user wants log files.
func (t *Telemetry) Show(ctx context.Context, title string, localRanks []int) (where string) {
	workers := t.showStacks(ctx, title, localRanks)
	if len(workers) == 0 {
		return ""
	}
	return workers[0].Where()
}

// ShowNow is [Telemetry.Show] for all workers of this node. If none runs, it says so on the console.
func (t *Telemetry) ShowNow(ctx context.Context, title string) {
	if len(t.showStacks(ctx, title, nil)) == 0 && ctx.Err() == nil {
		t.notice("no worker runs on this node")
	}
}

// showStacks shows the stacks of workers that run, and returns those workers.
func (t *Telemetry) showStacks(ctx context.Context, title string, localRanks []int) []stacks.Worker {
	workers := t.observer.StacksOf(ctx, localRanks, true)
	workers = slices.DeleteFunc(workers, stacks.Worker.Ended)
	if len(workers) == 0 || errors.Is(ctx.Err(), context.Canceled) { // the caller is no longer interested
		return nil
	}
	text := stacks.Brief(stacks.Merge(workers, false), len(workers) == 1, maxStackLines)
	whole := stacks.Text(stacks.Merge(workers, true), true)
	if path := t.appendStacks(ctx, title, whole); path != "" && strings.Count(whole, "\n") > strings.Count(text, "\n") {
		text += "whole stacks: " + path + "\n"
	}
	t.show(false, title, text)
	return workers
}

// ShowProgress implements agent.Stacks.
func (t *Telemetry) ShowProgress(ctx context.Context, elsewhere bool) {
	line := ""
	if elsewhere {
		line = t.observer.JobProgress(ctx, t.ask)
	} else {
		line = t.observer.Progress(ctx)
	}
	if line != "" {
		t.notice(line)
	}
}

// appendStacks appends stacks to the file in the log folder and returns its path; "" if the file was not written. A
// disk that does not answer delays it until ctx ends.
func (t *Telemetry) appendStacks(ctx context.Context, title, text string) string {
	if t.launcher.LogDir == "" || !t.keepsLogs {
		return ""
	}
	path := filepath.Join(t.launcher.LogDir, stacksFile)
	entry := fmt.Sprintf("%s %s\n\n%s\n", time.Now().Format(time.RFC3339), title, text)
	err, written := inTime(ctx, func() error { return appendTo(path, entry) })
	switch {
	case !written:
		return ""
	case err != nil:
		t.log.Debug().Err(err).Msg("the stacks are not in the log folder")
		return ""
	}
	return path
}

func appendTo(path, entry string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(entry)
	return errors.Join(err, f.Close())
}
