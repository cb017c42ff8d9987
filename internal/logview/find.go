package logview

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/lazyregexp"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// Find returns the folder of a run. run is a run id, the beginning of the name of a single run's folder, the folder of
// a run, or a folder that contains runs; empty means the latest run. base is the log folder. An empty base means the
// temporary log folders that belong to this user and the folders of runs in known: folders that other users made in the
// system's temporary folder cannot be trusted. The error says what was not found.
func Find(base, run string, known []string) (string, error) {
	if base == os.DevNull {
		return "", errors.New("the log folder is /dev/null, which keeps nothing: name another one with --log-dir")
	}
	if info, err := os.Stat(run); run != "" && err == nil && info.IsDir() {
		if isRun(run) {
			return filepath.EvalSymlinks(run)
		}
		base, run = run, ""
	}
	if base != "" && run == "" {
		if latest, ok := linked(base); ok {
			return latest, nil
		}
	}
	all := runsOf(base, known)
	runs := slices.DeleteFunc(slices.Clone(all), func(path string) bool {
		if run == "" { // most temporary folders have only error files
			return base == "" && !workerlog.HasLogs(path)
		}
		return !workerlog.IsRunFolder(filepath.Base(path), run)
	})
	if len(runs) > 0 {
		return runs[0], nil
	}
	near := slices.DeleteFunc(slices.Clone(all), func(path string) bool {
		return run == "" || !strings.HasPrefix(filepath.Base(path), run) || !workerlog.HasLogs(path)
	})
	switch len(near) {
	case 0:
		if err := CheckReadable(base, run); err != nil {
			return "", err
		}
		return "", noRun(base, run, slices.DeleteFunc(all, func(path string) bool { return !workerlog.HasLogs(path) }))
	case 1:
		return near[0], nil
	}
	return "", fmt.Errorf("%q begins the names of %d runs: %s; name one of them, or the log folder with --log-dir",
		run, len(near), someNames(near))
}

// CheckReadable reports why this user cannot read the log folder base, or in it the folder of the run with this id.
// Runs in such a folder are not seen. An empty base, and one that does not exist, are no error.
func CheckReadable(base, run string) error {
	if base == "" {
		return nil
	}
	entries, err := os.ReadDir(base)
	if err == nil && run != "" {
		for _, e := range entries {
			if path := filepath.Join(base, e.Name()); e.IsDir() && workerlog.IsRunFolder(e.Name(), run) && err == nil {
				_, err = os.ReadDir(path)
			}
		}
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok && errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("cannot read folder %s: %w", e.Path, e.Err)
	}
	return nil
}

// noRun returns the error for a run that was not found. others are the runs that exist.
func noRun(base, run string, others []string) error {
	what, where, why := "no run", " in "+base, ""
	if run != "" {
		what = fmt.Sprintf("no run %q", run)
	}
	if base == "" {
		what += " of yours"
		where = " in " + filepath.Join(os.TempDir(), "torchelastic_*") + " or among your last runs on this machine"
		why = "; a run without --log-dir, --redirects or --tee writes no log files"
	}
	if len(others) > 0 {
		why += "; the newest ones are " + someNames(others)
	}
	return fmt.Errorf("there is %s%s: name a run id or the folder of a run, or its log folder with --log-dir%s",
		what, where, why)
}

// List returns the folders of the runs with log files that [Find] chooses from, the latest first.
func List(base string, known []string) []string {
	return slices.DeleteFunc(runsOf(base, known), func(path string) bool { return !workerlog.HasLogs(path) })
}

// runsOf lists the folders of runs, the latest first: those in base, or those of this user if base is empty.
func runsOf(base string, known []string) (runs []string) {
	if base != "" {
		runs = runsIn(base)
	} else {
		bases, _ := fs.Glob(os.DirFS(os.TempDir()), "torchelastic_*") // fails only for a malformed pattern
		for _, name := range bases {
			if path := filepath.Join(os.TempDir(), name); isOwn(path) {
				runs = append(runs, runsIn(path)...)
			}
		}
		for _, path := range known {
			if isOwn(path) && isRun(path) && !slices.Contains(runs, path) {
				runs = append(runs, path)
			}
		}
	}
	changed := map[string]time.Time{}
	for _, path := range runs {
		changed[path] = lastChange(path)
	}
	slices.SortStableFunc(runs, func(a, b string) int { return changed[b].Compare(changed[a]) })
	return runs
}

// linked returns the run to which the link in base points. The link must lead to a folder beside it, as the launcher's
// own links do. Otherwise another user who may write to base could make it lead anywhere.
func linked(base string) (run string, ok bool) {
	name, err := os.Readlink(filepath.Join(base, workerlog.LatestLink))
	if err != nil || name != filepath.Base(name) || name == ".." || name == "." {
		return "", false
	}
	run = filepath.Join(base, name)
	info, err := os.Lstat(run)
	return run, err == nil && info.IsDir() && isRun(run)
}

// runsIn lists the folders of runs in base.
func runsIn(base string) (runs []string) {
	entries, _ := os.ReadDir(base)
	for _, entry := range entries {
		path := filepath.Join(base, entry.Name())
		if entry.IsDir() && isRun(path) {
			runs = append(runs, path)
		}
	}
	return runs
}

// someNames lists the names of the first folders.
func someNames(runs []string) string {
	const most = 5
	var names []string
	for _, run := range runs[:min(len(runs), most)] {
		names = append(names, filepath.Base(run))
	}
	if len(runs) > most {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}

// isRun reports whether a folder is that of a run: it holds attempts, or a launcher that has not made the first
// attempt yet has locked it.
func isRun(path string) bool {
	if len(attemptsIn(path)) > 0 {
		return true
	}
	active, err := workerlog.RunActive(path)
	return err == nil && active
}

// lastChange returns when the run's folder got its last attempt, which is the time of its last change. Later runs have
// later times.
func lastChange(run string) time.Time {
	info, err := os.Stat(run)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// attempt is the folder of one start of the workers.
type attempt struct {
	path            string
	restarts, round int // round is 0 if the name has none
	again           int // 2 or more if the same numbers were used before, else 0
}

// name returns the attempt's name for --attempt: 0, or 0.r1.
func (a attempt) name() string { return strings.TrimPrefix(filepath.Base(a.path), attemptPrefix) }

const attemptPrefix = "attempt_"

// attemptName matches the name of an attempt's folder: attempt_RESTARTS[.rROUND][.AGAIN].
var attemptName = lazyregexp.New(`^` + attemptPrefix + `(\d+)(?:\.r(\d+))?(?:\.(\d+))?$`)

// attemptsIn lists the attempts of a run in order.
func attemptsIn(run string) (found []attempt) {
	entries, _ := os.ReadDir(run)
	for _, entry := range entries {
		if parts := attemptName().FindStringSubmatch(entry.Name()); parts != nil && entry.IsDir() {
			a := attempt{path: filepath.Join(run, entry.Name())}
			for i, n := range []*int{&a.restarts, &a.round, &a.again} {
				*n, _ = strconv.Atoi(parts[i+1]) // digits, or nothing
			}
			found = append(found, a)
		}
	}
	slices.SortFunc(found, func(a, b attempt) int {
		return cmp.Or(cmp.Compare(a.again, b.again), cmp.Compare(a.restarts, b.restarts), cmp.Compare(a.round, b.round))
	})
	return found
}
