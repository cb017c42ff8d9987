//go:build !linux

package workerlog

import (
	"errors"
	"os"
)

// growPipe does nothing: the size of a pipe cannot be set here.
func growPipe(*os.File, int) {}

// reopenForDeadlines is not possible here: a console write cannot be ended.
func reopenForDeadlines(*os.File) (*os.File, error) { return nil, errors.ErrUnsupported }
