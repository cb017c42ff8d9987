package procs

import "slices"

// Output says where one stream of a worker goes. The zero value shows it nowhere;
// it is still read, so that its tail can be reported. A File without anything
// else is handed to the worker itself; everything else passes through a pipe.
type Output struct {
	// File gets every byte unchanged; empty is no file.
	File string
	// Console shows the stream on the launcher's stream of the same kind.
	Console bool
	// Prefix starts every line on the console and in FilteredFile.
	Prefix string
	// Filters are substrings: a line with any of them also goes to FilteredFile,
	// which the workers of a node share. None, or no FilteredFile, is no copy.
	Filters      []string
	FilteredFile string
	// Warn, if set, is told the first time that a file cannot be written, while the
	// worker runs, from the stream's own goroutine.
	Warn func(error)
}

// OutputRules are the options that decide where the output of workers goes, with
// torchrun's meaning. The zero value shows everything on the console.
type OutputRules struct {
	// Redirects selects the streams that go to files only.
	Redirects StdSpec
	// Tee selects those that go to files and, with a prefix, to the console; it
	// wins over Redirects.
	Tee StdSpec
	// LocalRanks are the local ranks that the console shows; none is all.
	LocalRanks []int
	// StdoutFilters and StderrFilters select lines of teed and shown streams for
	// the filtered files.
	StdoutFilters, StderrFilters []string
}

// Outputs derives both outputs of one worker. Where files has no path (the log
// folder is /dev/null) nothing is written: a redirected stream is dropped, a teed
// one goes to the console only.
func (r OutputRules) Outputs(localRank int, prefix string, files LogFiles) (stdout, stderr Output) {
	shown := len(r.LocalRanks) == 0 || slices.Contains(r.LocalRanks, localRank)
	derive := func(std Std, file string, filters []string, filteredFile string) Output {
		switch {
		case r.Tee.Of(localRank).Has(std) && shown:
			out := Output{File: file, Console: true, Prefix: prefix}
			if len(filters) > 0 && filteredFile != "" {
				out.Filters, out.FilteredFile = filters, filteredFile
			}
			return out
		case (r.Redirects.Of(localRank) | r.Tee.Of(localRank)).Has(std):
			return Output{File: file}
		}
		return Output{Console: shown}
	}
	return derive(Stdout, files.Stdout, r.StdoutFilters, files.FilteredStdout),
		derive(Stderr, files.Stderr, r.StderrFilters, files.FilteredStderr)
}
