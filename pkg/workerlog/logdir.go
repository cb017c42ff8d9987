package workerlog

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// LogDir is the log folder of one run on one node, in torchrun's layout:
//
//	<base>/<run id>_<8 random>/attempt_<restarts>/<local rank>/stdout.log
//	                                                           stderr.log
//	                                                           error.json
//	                           attempt_<restarts>/filtered_stdout.log
//	                                              filtered_stderr.log
//	                                              timeline
//	                                              nccl_trace_rank_<global rank>
//	                           attempt_<restarts>.r<round>/…
//	<base>/latest -> <run id>_<8 random>
//
// The last form of attempt is for a round that a membership change began, which is not charged as a restart. Only
// [LogDir.Cleanup] and rotation delete anything, and no existing file or folder is reused.
type LogDir struct {
	run  string   // the folder of this run; empty: nothing is written
	temp string   // the temporary folder around it; empty: the user named a folder
	lock *os.File // the folder, locked while the run is active; nil if locks are not supported
}

// LogFiles are the log paths of one worker. All are empty if nothing is written. The files need not exist.
type LogFiles struct {
	Stdout, Stderr, Error          string
	FilteredStdout, FilteredStderr string // shared by the workers of the attempt
	Timeline                       string // shared by the workers of the attempt; see [TimelineName]
	TracePrefix                    string // NCCL's flight recorder appends the global rank
}

// OpenLogDir makes the folder of one run under base, and base if it is missing. An empty base means a new folder in
// the system's temporary folder, which holds error files if nothing else. /dev/null returns a LogDir that writes
// nothing.
func OpenLogDir(base, runID string) (*LogDir, error) {
	d := &LogDir{}
	var err error
	switch base {
	case os.DevNull:
		return d, nil
	case "":
		if d.temp, err = os.MkdirTemp("", tempPrefix); err != nil {
			return nil, fmt.Errorf("make a temporary log folder: %w; name a writable one with --log-dir", err)
		}
		base = d.temp
	default:
		if base, err = makeBase(base); err != nil {
			return nil, err
		}
	}
	if d.run, err = makeUnique(base, folderName(runID)+"_"); err != nil {
		return nil, fmt.Errorf("make a folder in log folder %q: %w; name a writable one with --log-dir", base, err)
	}
	d.lock = lockFolder(d.run)
	return d, nil
}

// tempPrefix begins the name of a temporary log folder.
const tempPrefix = "torchelastic_"

// Path returns the folder of this run, or "" if nothing is written.
func (d *LogDir) Path() string { return d.run }

// Optional reports whether the user named no folder, so that a job can run without it.
func (d *LogDir) Optional() bool { return d.temp != "" }

// Attempt makes the folder for one start of the worker group. restarts is the number of charged restarts so far.
// membershipChange says that no charged restart began the round. No folder is used twice: if the rendezvous store was
// replaced and counts again from 0, the folder's name gets the suffix .2, or the next free number.
func (d *LogDir) Attempt(restarts, round int, membershipChange bool) (*Attempt, error) {
	if d.run == "" {
		return &Attempt{}, nil
	}
	name := "attempt_" + strconv.Itoa(restarts)
	if membershipChange {
		name += ".r" + strconv.Itoa(round)
	}
	dir := filepath.Join(d.run, name)
	err := os.Mkdir(dir, 0o755)
	for n := 2; errors.Is(err, fs.ErrExist); n++ {
		dir = filepath.Join(d.run, fmt.Sprintf("%s.%d", name, n))
		err = os.Mkdir(dir, 0o755)
	}
	if err != nil {
		return nil, fmt.Errorf("make log folder: %w", err)
	}
	return &Attempt{dir: dir}, nil
}

// LinkLatest makes the link "latest" in the folder that the user named point to this run. Of several runs the last
// caller wins. If the name belongs to anything but a link, LinkLatest leaves it alone and returns an error.
func (d *LogDir) LinkLatest() error {
	if d.run == "" || d.temp != "" {
		return nil
	}
	link := filepath.Join(filepath.Dir(d.run), LatestLink)
	if info, err := os.Lstat(link); err == nil && info.Mode()&fs.ModeSymlink == 0 {
		return fmt.Errorf("%s is not a link and was left unchanged", link)
	}
	// A rename replaces the link atomically. No other run uses the temporary name.
	name := filepath.Base(d.run)
	fresh := filepath.Join(filepath.Dir(d.run), "."+name)
	err := os.Symlink(name, fresh)
	if err == nil {
		if err = os.Rename(fresh, link); err != nil {
			_ = os.Remove(fresh)
		}
	}
	if err != nil {
		return fmt.Errorf("link to the latest run: %w", err)
	}
	return nil
}

// LatestLink is the name of the link to the run that was started last.
const LatestLink = "latest"

// Cleanup ends the run: [RunActive] returns false from then on. It removes the temporary folder, if there is one and
// it contains only folders. It leaves a folder that the user named unchanged.
func (d *LogDir) Cleanup() error {
	if d.lock != nil {
		_ = d.lock.Close()
	}
	if d.temp == "" {
		return nil
	}
	folders, err := onlyFolders(d.temp)
	if errors.Is(err, errNotEmpty) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// Deepest folder first. Removing a folder fails if a file was created in it since.
	for _, folder := range slices.Backward(folders) {
		if err == nil {
			err = os.Remove(folder)
		}
	}
	if err != nil {
		return fmt.Errorf("remove the empty temporary log folder: %w", err)
	}
	return nil
}

// onlyFolders lists the folders of a tree, each before its contents. It returns errNotEmpty if the tree has anything
// else.
func onlyFolders(root string) (folders []string, err error) {
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !entry.IsDir():
			return errNotEmpty
		}
		folders = append(folders, path)
		return nil
	})
	return folders, err
}

var errNotEmpty = errors.New("folder is not empty")

// Attempt is the folder of one start of the worker group.
type Attempt struct {
	dir string // empty: nothing is written
}

// Path returns the attempt's folder, or "" if nothing is written.
func (a *Attempt) Path() string { return a.dir }

// CreateTimeline creates the attempt's timeline, to which its workers' streams add. Call it for attempts with at
// least one stream that goes to a file.
func (a *Attempt) CreateTimeline(head TimelineHead) error {
	if a.dir == "" {
		return nil
	}
	file, err := os.OpenFile(filepath.Join(a.dir, TimelineName), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err == nil {
		_, err = file.WriteString(head.String() + "\n")
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return fmt.Errorf("create the log timeline: %w", err)
	}
	return nil
}

// Files makes the folder of one worker and returns its log paths.
func (a *Attempt) Files(localRank int) (LogFiles, error) {
	if a.dir == "" {
		return LogFiles{}, nil
	}
	dir := filepath.Join(a.dir, strconv.Itoa(localRank))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return LogFiles{}, fmt.Errorf("make log folder: %w", err)
	}
	return logFiles(a.dir, localRank), nil
}

// logFiles returns the log paths of one worker in the folder of an attempt.
func logFiles(attempt string, localRank int) LogFiles {
	dir := filepath.Join(attempt, strconv.Itoa(localRank))
	return LogFiles{
		Stdout:         filepath.Join(dir, "stdout.log"),
		Stderr:         filepath.Join(dir, "stderr.log"),
		Error:          filepath.Join(dir, "error.json"),
		FilteredStdout: filepath.Join(attempt, "filtered_stdout.log"),
		FilteredStderr: filepath.Join(attempt, "filtered_stderr.log"),
		Timeline:       filepath.Join(attempt, TimelineName),
		TracePrefix:    filepath.Join(attempt, "nccl_trace_rank_"),
	}
}

// makeBase makes the folder that the user named and returns its absolute path, because workers receive paths in it
// and may run in another folder.
func makeBase(base string) (string, error) {
	path, err := checkBase(base)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return "", fmt.Errorf("make log folder %q: %w; name a writable one with --log-dir", base, err)
	}
	return path, nil
}

// checkBase returns the absolute path of base, if base is a folder or does not exist yet.
func checkBase(base string) (string, error) {
	path, err := filepath.Abs(base)
	if err != nil {
		return "", fmt.Errorf("find log folder %q: %w", base, err)
	}
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return "", fmt.Errorf("log folder %q is a file: name a folder with --log-dir", base)
	}
	return path, nil
}

const (
	randomLetters = "abcdefghijklmnopqrstuvwxyz0123456789_"
	randomLength  = 8
)

// makeUnique makes a folder whose name is prefix and 8 random characters. Like torchrun's it is private to the user.
func makeUnique(base, prefix string) (string, error) {
	for {
		random := make([]byte, randomLength)
		for i := range random {
			random[i] = randomLetters[rand.IntN(len(randomLetters))]
		}
		path := filepath.Join(base, prefix+string(random))
		if err := os.Mkdir(path, 0o700); !errors.Is(err, fs.ErrExist) {
			return path, err
		}
	}
}

// IsRunFolder reports whether a folder of this name is that of a run with this id.
func IsRunFolder(name, runID string) bool {
	rest, found := strings.CutPrefix(name, folderName(runID)+"_")
	return found && len(rest) == randomLength && strings.Trim(rest, randomLetters) == ""
}

// folderName makes a run id usable as part of one path element: no separators, no control characters, and short
// enough for the random part after it.
func folderName(runID string) string {
	const maxBytes = 200
	name := strings.Map(func(r rune) rune {
		if r == '/' || r == os.PathSeparator || r < ' ' || r == 0x7f {
			return '_'
		}
		return r
	}, strings.ToValidUTF8(runID, "_"))
	if len(name) > maxBytes {
		name = strings.ToValidUTF8(name[:maxBytes], "")
	}
	return name
}

// RunName returns the run id in the name of a run's folder, as far as the name shows it.
func RunName(name string) string {
	if at := len(name) - randomLength - 1; at > 0 && name[at] == '_' && strings.Trim(name[at+1:], randomLetters) == "" {
		return name[:at]
	}
	return name
}

// HasLogs reports whether the folder of a run has the log file of a stream.
func HasLogs(run string) bool {
	logs, _ := fs.Glob(os.DirFS(run), "attempt_*/*/std*.log") // fails only for a malformed pattern
	return len(logs) > 0
}
