package workerlog

import "time"

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

// OwnFile returns the file to which the worker writes the stream itself; empty if the stream passes through a pipe.
func (o *Output) OwnFile() string {
	filtered := len(o.Filters) > 0 && o.FilteredFile != ""
	if o.Console || filtered || o.Rotation.MaxSize != 0 || o.Piped {
		return ""
	}
	return o.File
}
