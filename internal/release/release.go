package release

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/manpage"
)

// Kind is a kind of file in a release.
type Kind string

// The kinds of files.
const (
	Archive Kind = "archive" // tar.gz with the binary, the manual pages and the completions
	Wheel   Kind = "wheel"   // Python package
	Deb     Kind = "deb"     // Debian package, for Linux
	Image   Kind = "image"   // OCI image layout, for all Linux platforms
	Man     Kind = "man"     // the manual pages alone, in man/man1
)

// Kinds returns the kinds of a whole release, which are all but Man.
func Kinds() []Kind { return []Kind{Archive, Wheel, Deb, Image} }

// KindNames lists all kinds, separated by commas, for a message.
func KindNames() string {
	var names []string
	for _, kind := range append(Kinds(), Man) {
		names = append(names, string(kind))
	}
	return strings.Join(names, ", ")
}

// Options configure a release.
type Options struct {
	// Root is the root folder of the repository.
	Root string
	// Out is the folder for the output; it is created if it does not exist.
	Out string
	// Version is the version of the source.
	Version Version
	// Date is the date of all files, usually that of the commit.
	Date time.Time
	// Targets are the platforms.
	Targets []Target
	// Kinds are what to make. If there are several, SHA256SUMS has the checksums of all files.
	Kinds []Kind
	// Progress receives the path of each file that is written, one per line.
	Progress io.Writer
}

// Run makes the files of each kind for each target.
func Run(ctx context.Context, o Options) error {
	s := &sources{o: o, binaries: make(map[Target][]byte)}
	var made []file
	for _, kind := range o.Kinds {
		files, err := s.pack(ctx, kind)
		if err != nil {
			return fmt.Errorf("make %s: %w", kind, err)
		}
		made = append(made, files...)
	}
	if len(o.Kinds) > 1 {
		var sums bytes.Buffer
		for _, f := range byName(made) {
			fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(f.data), f.name)
		}
		made = append(made, file{name: "SHA256SUMS", data: sums.Bytes()})
	}
	return o.save(made)
}

// pages returns the manual pages.
func (o Options) pages() ([]file, error) {
	codes, err := os.ReadFile(filepath.Join(o.Root, "docs", "exit-codes.md"))
	if err != nil {
		return nil, fmt.Errorf("make the manual pages: %w", err)
	}
	pages, err := manpage.Pages(manpage.Options{Version: o.Version.String(), Date: o.Date, ExitCodes: string(codes)})
	if err != nil {
		return nil, fmt.Errorf("make the manual pages: %w", err)
	}
	var files []file
	for name, page := range pages {
		files = append(files, file{name: "man/man1/" + name, data: []byte(page)})
	}
	return files, nil
}

func (o Options) save(files []file) error {
	for _, f := range files {
		path := filepath.Join(o.Out, filepath.FromSlash(f.name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("save %s: %w", f.name, err)
		}
		if err := os.WriteFile(path, f.data, 0o644); err != nil {
			return fmt.Errorf("save %s: %w", f.name, err)
		}
		fmt.Fprintln(o.Progress, path)
	}
	return nil
}
