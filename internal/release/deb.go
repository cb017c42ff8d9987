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

// runNfpm lets nfpm make the package, and returns its bytes.
func (s *sources) runNfpm(ctx context.Context, t Target, files []file) ([]byte, error) {
	dir, err := os.MkdirTemp("", "elasticrun-release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	date := s.o.Date.UTC().Truncate(time.Second)
	scripts, contents := map[string]string{}, []any{}
	for key, name := range map[string]string{"preremove": "prerm", "postremove": "postrm"} {
		script, err := debianFiles.ReadFile("debian/" + name)
		if err != nil {
			return nil, err
		}
		scripts[key] = filepath.Join(dir, name)
		if err := os.WriteFile(scripts[key], script, 0o600); err != nil {
			return nil, err
		}
	}
	for i, f := range files {
		src := filepath.Join(dir, fmt.Sprintf("file%d", i))
		if err := os.WriteFile(src, f.data, 0o600); err != nil {
			return nil, err
		}
		contents = append(contents, map[string]any{
			"src": src, "dst": "/" + f.name, "file_info": map[string]any{"mode": f.mode(), "mtime": date},
		})
	}
	text, err := json.Marshal(map[string]any{ // nfpm's configuration is YAML, and JSON is YAML too
		"name": "elasticrun", "arch": t.Arch, "platform": t.OS, "version": s.o.Version.Debian(), "version_schema": "none",
		"section": "science", "priority": "optional", "maintainer": "elasticrun <elasticrun@users.noreply.github.com>",
		"description": "starts, watches and restarts distributed training jobs\n" +
			"elasticrun has the command line of torchrun, in one static program.\n" +
			"Scripts and workers run unchanged. The package also has a systemd unit\n" +
			"for elasticrun store, which it neither enables nor starts.",
		"homepage": "https://github.com/elasticrun/elasticrun", "license": "Apache-2.0", "mtime": date,
		"suggests": []string{"python3-torch"}, "scripts": scripts, "contents": contents,
	})
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
