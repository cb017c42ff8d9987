package release

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/elasticrun/elasticrun/internal/lazyregexp"
)

// heading matches the headings of versions in CHANGELOG.md. The first one is the newest.
var heading = lazyregexp.New(`(?m)^## \[([^\]\n]*)\]`)

// described matches the output of git describe --long --dirty.
var described = lazyregexp.New(`^(.+)-(\d+)-g([0-9a-f]+)(-dirty)?$`)

// DescribeVersion returns the version of the source in a folder: the version of the tag if git has one for this commit,
// and otherwise a development version. It calls warn if the folder is a git repository that git cannot read.
func DescribeVersion(ctx context.Context, root string, warn func(problem string)) (Version, error) {
	next, err := nextVersion(root)
	if err != nil {
		return Version{}, err
	}
	var s source
	if isRepository(root) {
		if s, err = describe(ctx, root); err != nil {
			warn(fmt.Sprintf("the version has no commit: %v", err))
		}
	}
	return versionOf(s, next)
}

// nextVersion returns the version of the newest heading of CHANGELOG.md.
func nextVersion(root string) (Version, error) {
	path := filepath.Join(root, "CHANGELOG.md")
	text, err := os.ReadFile(path)
	if err != nil {
		return Version{}, fmt.Errorf("find the next version: %w", err)
	}
	m := heading().FindSubmatch(text)
	if m == nil {
		return Version{}, fmt.Errorf("find the next version: %s has no heading such as \"## [1.2.3] - unreleased\"", path)
	}
	v, err := ParseVersion(string(m[1]))
	if err != nil {
		return Version{}, fmt.Errorf("newest heading of %s: %w", path, err)
	}
	return v, nil
}

// isRepository reports whether the folder is the root of a git repository. A folder that is not may still lie inside of
// another repository, whose tags mean something else.
func isRepository(root string) bool {
	_, err := os.Stat(filepath.Join(root, ".git"))
	return !errors.Is(err, fs.ErrNotExist)
}

// describe asks git.
func describe(ctx context.Context, root string) (source, error) {
	out, err := git(ctx, root, "describe", "--tags", "--match", "v[0-9]*", "--long", "--dirty", "--abbrev=7")
	if err == nil {
		return parseDescription(out)
	}
	out, err = git(ctx, root, "describe", "--always", "--exclude", "*", "--dirty", "--abbrev=7") // no such tag
	if err != nil {
		return source{}, err
	}
	s := source{}
	s.commit, s.dirty = strings.CutSuffix(out, "-dirty")
	if out, err = git(ctx, root, "rev-parse", "--is-shallow-repository"); err != nil || out != "false" {
		return s, err // a shallow clone does not have all commits
	}
	if out, err = git(ctx, root, "rev-list", "--count", "HEAD"); err != nil {
		return source{}, err
	}
	s.commits, err = strconv.Atoi(out)
	return s, err
}

func parseDescription(text string) (source, error) {
	m := described().FindStringSubmatch(text)
	if m == nil {
		return source{}, fmt.Errorf("git describe: unexpected output %q", text)
	}
	commits, err := strconv.Atoi(m[2])
	return source{tag: m[1], commits: commits, commit: m[3], dirty: m[4] != ""}, err
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = root
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		first, _, _ := strings.Cut(strings.TrimSpace(string(exit.Stderr)), "\n")
		return "", fmt.Errorf("git %s: %s", args[0], first)
	}
	return strings.TrimSpace(string(out)), err
}
