package release

import (
	"archive/zip"
	"crypto/sha256"
	_ "embed" // the Python package
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"
)

// The Python package, with which python -m elasticrun finds the binary.
var (
	//go:embed python/__init__.py
	pythonInit []byte
	//go:embed python/__main__.py
	pythonMain []byte
)

// wheel is a Python package for one platform. Its form is that of
// https://packaging.python.org/en/latest/specifications/binary-distribution-format/.
type wheel struct {
	version string   // by PythonVersion
	tags    []string // of the platform
	binary  []byte
	licence []byte
	readme  []byte
}

// name is the file's name, from which installers read what it fits.
func (w wheel) name() string {
	return fmt.Sprintf("elasticrun-%s-py3-none-%s.whl", w.version, strings.Join(w.tags, "."))
}

// files are all but RECORD. What is in scripts goes to the folder of programs.
func (w wheel) files() []file {
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
	return []file{
		{name: "elasticrun/__init__.py", data: pythonInit},
		{name: "elasticrun/__main__.py", data: pythonMain},
		{name: stem + ".data/scripts/elasticrun", data: w.binary, executable: true},
		{name: stem + ".dist-info/LICENSE", data: w.licence},
		{name: stem + ".dist-info/METADATA", data: append([]byte(metadata), w.readme...)},
		{name: stem + ".dist-info/WHEEL", data: []byte("Wheel-Version: 1.0\nGenerator: elasticrun\nRoot-Is-Purelib: false\n" + tags)},
	}
}

// write writes it, RECORD last as the format asks for.
func (w wheel) write(to io.Writer, date time.Time) error {
	if first := time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC); date.Before(first) { // there is no earlier one in a zip file
		date = first
	}
	record := file{name: "elasticrun-" + w.version + ".dist-info/RECORD"}
	files := byName(w.files())
	for _, f := range files {
		sum := sha256.Sum256(f.data)
		record.data = fmt.Appendf(record.data, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.data))
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
