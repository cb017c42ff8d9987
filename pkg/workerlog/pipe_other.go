//go:build !linux

package workerlog

import (
	"errors"
	"os"
)

// growPipe does nothing: the size of a pipe cannot be set on this system.
func growPipe(*os.File, int) {}

// reopenForDeadlines fails: a console write cannot be ended on this system.
func reopenForDeadlines(*os.File) (*os.File, error) { return nil, errors.ErrUnsupported }
