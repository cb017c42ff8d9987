package release

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"slices"
	"time"
)

// file is one file in an archive or a wheel.
type file struct {
	name       string // slash-separated
	executable bool
	data       []byte
}

func (f file) mode() int64 {
	if f.executable {
		return 0o755
	}
	return 0o644
}

func byName(files []file) []file {
	return slices.SortedFunc(slices.Values(files), func(a, b file) int { return cmp.Compare(a.name, b.name) })
}

// writeArchive writes a tar.gz with the files in one folder, sorted by name.
func writeArchive(w io.Writer, folder string, files []file, date time.Time) error {
	var below []file
	for _, f := range byName(files) {
		f.name = folder + "/" + f.name
		below = append(below, f)
	}
	zipped := gzip.NewWriter(w) // the gzip header has neither date nor name
	if err := writeTar(zipped, below, date); err != nil {
		return err
	}
	if err := zipped.Close(); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	return nil
}

// writeTar writes a tar file. All files belong to root and have the same date.
func writeTar(w io.Writer, files []file, date time.Time) error {
	archive := tar.NewWriter(w)
	for _, f := range files {
		err := archive.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode(), Size: int64(len(f.data)),
			ModTime: date.UTC().Truncate(time.Second), Uname: "root", Gname: "root", Format: tar.FormatUSTAR,
		})
		if err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
		if _, err := archive.Write(f.data); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	return nil
}
