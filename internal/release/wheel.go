package release

import (
	"archive/zip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// pythonPackage is the Python package. The prefix all: is for names that begin with an underscore.
//
//go:embed all:python
var pythonPackage embed.FS

// pythonFiles returns the files of the Python package. _version.py has version in place of the source's version.
func pythonFiles(version string) ([]file, error) {
	var files []file
	err := fs.WalkDir(pythonPackage, "python", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "__pycache__":
			return fs.SkipDir
		case d.IsDir() || !slices.Contains([]string{".py", ".pyi", ".typed"}, path.Ext(name)):
			return nil
		}
		data, err := pythonPackage.ReadFile(name)
		if path.Base(name) == "_version.py" {
			data = fmt.Appendf(nil, "__version__ = \"%s\"\n", version)
		}
		files = append(files, file{name: "elasticrun" + strings.TrimPrefix(name, "python"), data: data})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("collect the Python package: %w", err)
	}
	return files, nil
}

// wheel is a Python package for one platform, in the format of
// https://packaging.python.org/en/latest/specifications/binary-distribution-format/.
type wheel struct {
	version string   // in Python's form
	tags    []string // of the platform
	binary  []byte
	license []byte
	readme  []byte
}

// name returns the file name, from which installers learn the supported platforms.
func (w wheel) name() string {
	return fmt.Sprintf("elasticrun-%s-py3-none-%s.whl", w.version, strings.Join(w.tags, "."))
}

// files returns all files but RECORD. Installers copy the folder scripts to the folder of programs.
func (w wheel) files() ([]file, error) {
	stem := "elasticrun-" + w.version
	tags := "Tag: py3-none-" + strings.Join(w.tags, "\nTag: py3-none-") + "\n"
	metadata := fmt.Sprintf(`Metadata-Version: 2.1
Name: elasticrun
Version: %s
Summary: Start, watch and restart distributed training jobs: torchrun's command line, in one static binary
License: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.8
Description-Content-Type: text/markdown

`, w.version)
	files, err := pythonFiles(w.version)
	if err != nil {
		return nil, err
	}
	return append(files, []file{
		{name: stem + ".data/scripts/elasticrun", data: w.binary, executable: true},
		{name: stem + ".dist-info/LICENSE", data: w.license},
		{name: stem + ".dist-info/METADATA", data: append([]byte(metadata), w.readme...)},
		{
			name: stem + ".dist-info/WHEEL",
			data: []byte("Wheel-Version: 1.0\nGenerator: elasticrun\nRoot-Is-Purelib: false\n" + tags),
		},
	}...), nil
}

// write writes the wheel. The format requires RECORD to be the last file.
func (w wheel) write(to io.Writer, date time.Time) error {
	if first := time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC); date.Before(first) { // a zip file cannot hold earlier dates
		date = first
	}
	record := file{name: "elasticrun-" + w.version + ".dist-info/RECORD"}
	files, err := w.files()
	if err != nil {
		return err
	}
	files = byName(files)
	for _, f := range files {
		sum := sha256.Sum256(f.data)
		record.data = fmt.Appendf(
			record.data,
			"%s,sha256=%s,%d\n",
			f.name,
			base64.RawURLEncoding.EncodeToString(sum[:]),
			len(f.data),
		)
	}
	record.data = append(record.data, record.name+",,\n"...)
	archive := zip.NewWriter(to)
	for _, f := range append(files, record) {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: date.UTC().Truncate(time.Second)}
		header.SetMode(fs.FileMode(f.mode()))
		entry, err := archive.CreateHeader(header)
		if err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
		if _, err := entry.Write(f.data); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("write the wheel: %w", err)
	}
	return nil
}
