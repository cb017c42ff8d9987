package workerlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// LogPlan says where the logs of a run would be. It creates nothing.
type LogPlan struct {
	// Run is the folder of the run, with XXXXXXXX in place of random characters. It is empty if nothing would be written.
	Run string
}

// randomMark stands for the random characters of a name.
const randomMark = "XXXXXXXX"

// PlanLogDir returns what [OpenLogDir] would create. It returns the same errors, as far as they can be found without
// creating anything.
func PlanLogDir(base, runID string) (LogPlan, error) {
	switch base {
	case os.DevNull:
		return LogPlan{}, nil
	case "":
		_, err := os.Stat(os.TempDir())
		if err == nil {
			err = checkWritable(os.TempDir())
		}
		if err != nil {
			return LogPlan{}, fmt.Errorf("make a temporary log folder: %w; name a writable one with --log-dir", err)
		}
		return LogPlan{filepath.Join(os.TempDir(), tempPrefix+randomMark, folderName(runID)+"_"+randomMark)}, nil
	}
	path, err := checkBase(base)
	if err != nil {
		return LogPlan{}, err
	}
	if err := checkWritable(path); err != nil {
		return LogPlan{}, fmt.Errorf("make log folder %q: %w; name a writable one with --log-dir", base, err)
	}
	return LogPlan{filepath.Join(path, folderName(runID)+"_"+randomMark)}, nil
}

// Files returns the log paths of one worker of the first attempt.
func (p LogPlan) Files(localRank int) LogFiles {
	if p.Run == "" {
		return LogFiles{}
	}
	return logFiles(filepath.Join(p.Run, "attempt_0"), localRank)
}

// checkWritable checks whether this process could create files in folder. The folder need not exist if it could be
// created. The error is the system's own, with the path that it is about.
func checkWritable(folder string) error {
	for path := folder; ; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && path != filepath.Dir(path):
			continue
		case err != nil:
			return err
		case !info.IsDir():
			return &fs.PathError{Op: "mkdir", Path: path, Err: unix.ENOTDIR}
		}
		if err := unix.Access(path, unix.W_OK|unix.X_OK); err != nil {
			return &fs.PathError{Op: "mkdir", Path: path, Err: err}
		}
		return nil
	}
}
