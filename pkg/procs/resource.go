package procs

// ResourceError says that the machine lacks something that the launcher needs, or has used it up: processes, open files,
// room in a file system, /proc. Nothing is wrong with the job or with the program.
type ResourceError struct {
	// Problem says what is missing, which limit says so, and what to do, in one line.
	Problem string
	// Err is the system's own error.
	Err error
}

func (e *ResourceError) Error() string { return e.Problem }

// Unwrap returns the system's own error.
func (e *ResourceError) Unwrap() error { return e.Err }
