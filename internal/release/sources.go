package release

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sources makes the parts from which the files of a release are put together, when a kind first needs them.
type sources struct {
	o        Options
	binaries map[Target][]byte
	shells   []file // completions
}

// pack makes the files of a kind.
func (s *sources) pack(ctx context.Context, kind Kind) ([]file, error) {
	switch kind {
	case Man:
		return s.o.pages()
	case Archive:
		return s.forTargets(ctx, s.o.Targets, s.archive)
	case Wheel:
		return s.forTargets(ctx, s.o.Targets, s.wheel)
	case Deb:
		return s.forTargets(ctx, s.linux(), s.deb)
	case Image:
		return s.image(ctx)
	}
	return nil, fmt.Errorf("there is no such kind: give some of %s", KindNames())
}

func (s *sources) forTargets(
	ctx context.Context, targets []Target, pack func(context.Context, Target) (file, error),
) ([]file, error) {
	var files []file
	for _, t := range targets {
		f, err := pack(ctx, t)
		if err != nil {
			return nil, fmt.Errorf("for %s: %w", t, err)
		}
		files = append(files, f)
	}
	return files, nil
}

// linux returns the targets that are Linux.
func (s *sources) linux() []Target {
	return slices.DeleteFunc(slices.Clone(s.o.Targets), func(t Target) bool { return t.OS != "linux" })
}

// binary returns the binary for a platform.
func (s *sources) binary(ctx context.Context, t Target) ([]byte, error) {
	if s.binaries[t] == nil {
		binary, err := build(ctx, s.o.Root, s.o.Version, t)
		if err != nil {
			return nil, err
		}
		s.binaries[t] = binary
	}
	return s.binaries[t], nil
}

// completions returns the completion scripts of all shells, which the binary for this machine prints.
func (s *sources) completions(ctx context.Context) ([]file, error) {
	if s.shells == nil {
		binary, err := s.binary(ctx, Host())
		if err != nil {
			return nil, err
		}
		if s.shells, err = completions(ctx, binary); err != nil {
			return nil, err
		}
	}
	return s.shells, nil
}

// text returns a file of the repository.
func (s *sources) text(name string) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(s.o.Root, name))
	if err != nil {
		return nil, fmt.Errorf("collect the files: %w", err)
	}
	return data, nil
}

// archive makes the archive for a platform.
func (s *sources) archive(ctx context.Context, t Target) (file, error) {
	binary, err := s.binary(ctx, t)
	if err != nil {
		return file{}, err
	}
	files := []file{{name: "elasticrun", data: binary, executable: true}}
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md", unitPath} {
		data, err := s.text(name)
		if err != nil {
			return file{}, err
		}
		files = append(files, file{name: strings.TrimPrefix(name, "examples/"), data: data})
	}
	shells, err := s.completions(ctx)
	if err != nil {
		return file{}, err
	}
	for _, f := range shells {
		files = append(files, file{name: "completions/" + f.name, data: f.data})
	}
	pages, err := s.o.pages()
	if err != nil {
		return file{}, err
	}
	folder := fmt.Sprintf("elasticrun-%s-%s", s.o.Version, t)
	var packed bytes.Buffer
	err = writeArchive(&packed, folder, append(files, pages...), s.o.Date)
	return file{name: folder + ".tar.gz", data: packed.Bytes()}, err
}

// wheel makes the wheel for a platform.
func (s *sources) wheel(ctx context.Context, t Target) (file, error) {
	w := wheel{version: s.o.Version.Python()}
	var err error
	if w.binary, err = s.binary(ctx, t); err != nil {
		return file{}, err
	}
	if w.tags, err = t.wheelTags(); err != nil {
		return file{}, err
	}
	if w.license, err = s.text("LICENSE"); err != nil {
		return file{}, err
	}
	if w.readme, err = s.text("README.md"); err != nil {
		return file{}, err
	}
	var packed bytes.Buffer
	err = w.write(&packed, s.o.Date)
	return file{name: w.name(), data: packed.Bytes()}, err
}
