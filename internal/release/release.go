package release

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/internal/manpage"
)

// Options configure a release.
type Options struct {
	// Root is the root folder of the repository.
	Root string
	// Out is the folder for the output; it is created if it does not exist.
	Out string
	// Version is the output of git describe --tags --always --dirty.
	Version string
	// Date is the date of all files, usually that of the commit.
	Date time.Time
	// Targets are the platforms.
	Targets []Target
	// Progress receives the path of each file that is written, one per line.
	Progress io.Writer
}

// Run writes an archive and a wheel for each target, and SHA256SUMS.
func Run(ctx context.Context, o Options) error {
	python, err := PythonVersion(o.Version)
	if err != nil {
		return err
	}
	binaries := make(map[Target][]byte)
	for _, t := range append(slices.Clone(o.Targets), Host()) { // the host's binary makes the completions
		if binaries[t] != nil {
			continue
		}
		if binaries[t], err = build(ctx, o.Root, o.Version, t); err != nil {
			return err
		}
	}
	common, err := o.commonFiles(ctx, binaries[Host()])
	if err != nil {
		return err
	}
	var written []file
	for _, t := range o.Targets {
		made, err := o.pack(t, python, binaries[t], common)
		if err != nil {
			return fmt.Errorf("pack for %s: %w", t, err)
		}
		written = append(written, made...)
	}
	var sums bytes.Buffer
	for _, f := range byName(written) {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(f.data), f.name)
	}
	return o.save(append(written, file{name: "SHA256SUMS", data: sums.Bytes()}))
}

// pack makes the archive and the wheel of a platform.
func (o Options) pack(t Target, python string, binary []byte, common []file) ([]file, error) {
	folder := "elasticrun-" + o.Version + "-" + t.String()
	var archive, pythonArchive bytes.Buffer
	err := writeArchive(
		&archive,
		folder,
		append(slices.Clone(common), file{name: "elasticrun", data: binary, executable: true}),
		o.Date,
	)
	if err != nil {
		return nil, err
	}
	w := wheel{version: python, binary: binary}
	if w.tags, err = t.wheelTags(); err != nil {
		return nil, err
	}
	for _, f := range common {
		switch f.name {
		case "LICENSE":
			w.license = f.data
		case "README.md":
			w.readme = f.data
		}
	}
	if err := w.write(&pythonArchive, o.Date); err != nil {
		return nil, err
	}
	return []file{{name: folder + ".tar.gz", data: archive.Bytes()}, {name: w.name(), data: pythonArchive.Bytes()}}, nil
}

// commonFiles returns the files that are the same in every archive.
func (o Options) commonFiles(ctx context.Context, host []byte) ([]file, error) {
	files, err := completions(ctx, host)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		data, err := os.ReadFile(filepath.Join(o.Root, name))
		if err != nil {
			return nil, fmt.Errorf("collect the files: %w", err)
		}
		files = append(files, file{name: name, data: data})
	}
	pages, err := o.pages()
	return append(files, pages...), err
}

// pages returns the manual pages.
func (o Options) pages() ([]file, error) {
	codes, err := os.ReadFile(filepath.Join(o.Root, "docs", "exit-codes.md"))
	if err != nil {
		return nil, fmt.Errorf("make the manual pages: %w", err)
	}
	pages, err := manpage.Pages(manpage.Options{Version: o.Version, Date: o.Date, ExitCodes: string(codes)})
	if err != nil {
		return nil, fmt.Errorf("make the manual pages: %w", err)
	}
	var files []file
	for name, page := range pages {
		files = append(files, file{name: "man/man1/" + name, data: []byte(page)})
	}
	return files, nil
}

// Man writes only the manual pages, to man/man1.
func Man(o Options) error {
	pages, err := o.pages()
	if err != nil {
		return err
	}
	return o.save(byName(pages))
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
