package release

import (
	"bytes"
	"compress/gzip"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// debianFiles are the scripts that dpkg runs, and the copyright file.
//
//go:embed debian
var debianFiles embed.FS

// completionPaths maps the names of completionName to the files where Debian's shells look for completions.
func completionPaths() map[string]string {
	return map[string]string{
		"elasticrun.bash": "usr/share/bash-completion/completions/elasticrun",
		"_elasticrun":     "usr/share/zsh/vendor-completions/_elasticrun",
		"elasticrun.fish": "usr/share/fish/vendor_completions.d/elasticrun.fish",
	}
}

// unitPath is the unit of elasticrun store, in the repository.
const unitPath = "examples/systemd/elasticrun-store.service"

// deb makes the Debian package for a platform. The package has no /usr/bin/torchrun, because python3-torch has that
// file. It neither enables nor starts the service.
func (s *sources) deb(ctx context.Context, t Target) (file, error) {
	files, err := s.debContents(ctx, t)
	if err != nil {
		return file{}, err
	}
	name := fmt.Sprintf("elasticrun_%s_%s.deb", s.o.Version.Debian(), t.Arch) // Debian's names are Go's
	data, err := s.runNfpm(ctx, t, files)
	return file{name: name, data: data}, err
}

// debContents returns the files that the package installs, with names from the root folder.
func (s *sources) debContents(ctx context.Context, t Target) ([]file, error) {
	binary, err := s.binary(ctx, t)
	if err != nil {
		return nil, err
	}
	files := []file{{name: "usr/bin/elasticrun", data: binary, executable: true}}
	for from, to := range map[string]string{
		"README.md": "usr/share/doc/elasticrun/README.md", "CHANGELOG.md": "usr/share/doc/elasticrun/CHANGELOG.md",
		unitPath: "usr/lib/systemd/system/" + path.Base(unitPath),
	} {
		data, err := s.text(from)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: to, data: data})
	}
	copyright, err := debianFiles.ReadFile("debian/copyright")
	if err != nil {
		return nil, err
	}
	files = append(files, file{name: "usr/share/doc/elasticrun/copyright", data: copyright})
	shells, err := s.completions(ctx)
	if err != nil {
		return nil, err
	}
	for _, f := range shells {
		if to, ok := completionPaths()[f.name]; ok {
			files = append(files, file{name: to, data: f.data})
		}
	}
	pages, err := s.o.pages()
	if err != nil {
		return nil, err
	}
	for _, f := range pages {
		zipped, err := compress(f.data)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: "usr/share/" + f.name + ".gz", data: zipped})
	}
	return byName(files), nil
}

// compress returns data in gzip's format, without a date.
func compress(data []byte) ([]byte, error) {
	var zipped bytes.Buffer
	w, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	if _, err := w.Write(data); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	return zipped.Bytes(), nil
}

// nfpmConfig is nfpm's configuration file. JSON is YAML too.
type nfpmConfig struct {
	Name          string            `json:"name"`
	Arch          string            `json:"arch"`
	Platform      string            `json:"platform"`
	Version       string            `json:"version"`
	VersionSchema string            `json:"version_schema"`
	Section       string            `json:"section"`
	Priority      string            `json:"priority"`
	Maintainer    string            `json:"maintainer"`
	Description   string            `json:"description"`
	Homepage      string            `json:"homepage"`
	License       string            `json:"license"`
	MTime         time.Time         `json:"mtime"`
	Suggests      []string          `json:"suggests"`
	Contents      []nfpmContent     `json:"contents"`
	Scripts       map[string]string `json:"scripts"`
}

type nfpmContent struct {
	Src      string       `json:"src"`
	Dst      string       `json:"dst"`
	FileInfo nfpmFileInfo `json:"file_info"`
}

type nfpmFileInfo struct {
	Mode  int64     `json:"mode"`
	MTime time.Time `json:"mtime"`
}

// runNfpm lets nfpm make the package, and returns its bytes.
func (s *sources) runNfpm(ctx context.Context, t Target, files []file) ([]byte, error) {
	dir, err := os.MkdirTemp("", "elasticrun-release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	date := s.o.Date.UTC().Truncate(time.Second)
	config := nfpmConfig{
		Name: "elasticrun", Arch: t.Arch, Platform: t.OS, Version: s.o.Version.Debian(), VersionSchema: "none",
		Section: "science", Priority: "optional", Maintainer: "elasticrun <elasticrun@users.noreply.github.com>",
		Description: "starts, watches and restarts distributed training jobs\n" +
			"elasticrun has the command line of torchrun, in one static program.\n" +
			"Scripts and workers run unchanged. The package also has a systemd unit\n" +
			"for elasticrun store, which it neither enables nor starts.",
		Homepage: "https://github.com/elasticrun/elasticrun", License: "Apache-2.0", MTime: date,
		Suggests: []string{"python3-torch"}, Scripts: make(map[string]string),
	}
	for key, name := range map[string]string{"preremove": "prerm", "postremove": "postrm"} {
		script, err := debianFiles.ReadFile("debian/" + name)
		if err != nil {
			return nil, err
		}
		config.Scripts[key] = filepath.Join(dir, name)
		if err := os.WriteFile(config.Scripts[key], script, 0o600); err != nil {
			return nil, err
		}
	}
	for i, f := range files {
		src := filepath.Join(dir, fmt.Sprintf("file%d", i))
		if err := os.WriteFile(src, f.data, 0o600); err != nil {
			return nil, err
		}
		config.Contents = append(config.Contents, nfpmContent{
			Src: src, Dst: "/" + f.name, FileInfo: nfpmFileInfo{Mode: f.mode(), MTime: date},
		})
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	path, out := filepath.Join(dir, "nfpm.yaml"), filepath.Join(dir, "out.deb")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "tool", "-modfile=internal/tools/nfpm/go.mod", "nfpm", "package",
		"--config", path, "--packager", "deb", "--target", out)
	cmd.Dir = s.o.Root
	cmd.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", date.Unix()))
	if message, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("run nfpm: %w\n%s", err, strings.TrimSpace(string(message)))
	}
	return os.ReadFile(out)
}
