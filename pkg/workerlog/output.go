package workerlog

import "time"

// Output says where one stream of a worker goes. The zero value shows it nowhere, but the stream is still read, so
// that its tail can be reported. If only File is set, without rotation, the worker writes the file itself. Everything
// else passes through a pipe.
type Output struct {
	// File receives every byte unchanged. Empty means no file.
	File string
	// Rotation limits the size of File. With a limit, the bytes pass through the launcher.
	Rotation Rotation
	// Timeline is the file that records when File was written; see [TimelineName]. It must exist already. The workers
	// of a group share it. Empty means none.
	Timeline string
	// Console shows the stream on the launcher's stdout or stderr.
	Console bool
	// Prefix starts every line on the console and in FilteredFile.
	Prefix Prefix
	// Filters are substrings: a line with any of them is also copied to FilteredFile, which the workers of a node
	// share. Without Filters or FilteredFile nothing is copied.
	Filters      []string
	FilteredFile string
	// Piped makes the stream pass through a pipe even if the worker could write the file itself, so that Scan sees it.
	Piped bool
	// Scan, if set, receives every byte that passes through a pipe. It sees nothing of a stream that the worker
	// writes to a file itself.
	Scan Scanner
	// Warn, if set, is called the first time that a file cannot be written, while the worker runs, from the stream's
	// own goroutine.
	Warn func(error)
}

// Scanner examines what a worker writes.
type Scanner interface {
	// Scan receives the next bytes of the stream and when they were read. It is called from the stream's own goroutine,
	// which it delays, and must not keep p.
	Scan(p []byte, read time.Time)
}

// OwnFile returns the file to which the worker writes the stream itself; empty if the stream passes through a pipe.
func (o *Output) OwnFile() string {
	if o.Console || o.isFiltered() || o.Rotation.MaxSize != 0 || o.Piped {
		return ""
	}
	return o.File
}

// isFiltered reports whether lines of the stream are copied to FilteredFile.
func (o *Output) isFiltered() bool { return len(o.Filters) > 0 && o.FilteredFile != "" }

// AddScanner makes s examine the stream too.
func (o *Output) AddScanner(s Scanner) {
	if o.Scan != nil {
		s = scanners{o.Scan, s}
	}
	o.Scan = s
}

// scanners passes everything on to each of them.
type scanners []Scanner

// Scan implements Scanner.
func (s scanners) Scan(p []byte, read time.Time) {
	for _, scanner := range s {
		scanner.Scan(p, read)
	}
}

// OutputRules are the options that decide where the output of workers goes, with torchrun's meaning. The zero value
// shows everything on the console.
type OutputRules struct {
	// Redirects selects the streams that go to files only.
	Redirects StreamSpec
	// Tee selects the streams that go to files and, with a prefix, to the console. It has priority over Redirects.
	Tee StreamSpec
	// Shown are the workers that the console shows. Nil means all.
	Shown RankSet
	// Rotation applies to the files of both streams.
	Rotation Rotation
	// StdoutFilters and StderrFilters select lines of teed and shown streams for the filtered files.
	StdoutFilters, StderrFilters []string
}

// Outputs returns both outputs of one worker in one round. If files has no paths (the log folder is /dev/null)
// nothing is written: a redirected stream is dropped, and a teed stream goes to the console only.
func (r OutputRules) Outputs(w Ranks, prefix Prefix, files LogFiles) (stdout, stderr Output) {
	shown := r.Shown.Has(w)
	derive := func(std StreamSet, file string, filters []string, filteredFile string) Output {
		logged := Output{File: file}
		if file != "" {
			logged.Rotation, logged.Timeline = r.Rotation, files.Timeline
		}
		switch {
		case r.Tee.Of(w).Has(std) && shown:
			out := logged
			out.Console, out.Prefix = true, prefix
			if len(filters) > 0 && filteredFile != "" {
				out.Filters, out.FilteredFile = filters, filteredFile
			}
			return out
		case (r.Redirects.Of(w) | r.Tee.Of(w)).Has(std):
			return logged
		}
		return Output{Console: shown}
	}
	return derive(Stdout, files.Stdout, r.StdoutFilters, files.FilteredStdout),
		derive(Stderr, files.Stderr, r.StderrFilters, files.FilteredStderr)
}
