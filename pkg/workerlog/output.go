package workerlog

import "time"

// Output says where one stream of a worker goes. The zero value shows it nowhere;
// it is still read, so that its tail can be reported. A File without anything
// else, rotation included, is handed to the worker itself; everything else passes through a pipe.
type Output struct {
	// File gets every byte unchanged; empty is no file.
	File string
	// Rotation bounds File. Where it does, the bytes pass through the launcher.
	Rotation Rotation
	// Timeline is the file that gets marks of what is written to File when, where it
	// exists. The workers of a group share it. Empty is none.
	Timeline string
	// Console shows the stream on the launcher's stream of the same kind.
	Console bool
	// Prefix starts every line on the console and in FilteredFile.
	Prefix Prefix
	// Filters are substrings: a line with any of them also goes to FilteredFile,
	// which the workers of a node share. None, or no FilteredFile, is no copy.
	Filters      []string
	FilteredFile string
	// Scan, if set, is shown every byte that passes through a pipe. Of a stream that the worker writes to a file by itself it sees nothing.
	Scan Scanner
	// Warn, if set, is told the first time that a file cannot be written, while the
	// worker runs, from the stream's own goroutine.
	Warn func(error)
}

// Scanner looks at what a worker writes. It is called from the stream's own goroutine, which it holds up, with bytes that it must not
// keep, and when they were read.
type Scanner interface {
	Scan(p []byte, read time.Time)
}

// OutputRules are the options that decide where the output of workers goes, with
// torchrun's meaning. The zero value shows everything on the console.
type OutputRules struct {
	// Redirects selects the streams that go to files only.
	Redirects StdSpec
	// Tee selects those that go to files and, with a prefix, to the console; it
	// wins over Redirects.
	Tee StdSpec
	// Shown are the workers that the console shows; nil is all.
	Shown RankSet
	// Rotation is for the files of both streams.
	Rotation Rotation
	// StdoutFilters and StderrFilters select lines of teed and shown streams for
	// the filtered files.
	StdoutFilters, StderrFilters []string
}

// Outputs derives both outputs of one worker in one round. Where files has no path (the log
// folder is /dev/null) nothing is written: a redirected stream is dropped, a teed
// one goes to the console only.
func (r OutputRules) Outputs(w Ranks, prefix Prefix, files LogFiles) (stdout, stderr Output) {
	shown := r.Shown.Has(w)
	derive := func(std Std, file string, filters []string, filteredFile string) Output {
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
