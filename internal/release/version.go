package release

import (
	"fmt"
	"regexp"
	"strings"
)

// described is what git describe --tags --always --dirty says: a tag, how many commits since it and which one, or, without a tag,
// the commit alone.
var described = regexp.MustCompile(`^(?:v?(\d+\.\d+\.\d+)(?:-(a|alpha|b|beta|rc)\.?(\d+))?(?:-(\d+)-g([0-9a-f]+))?|([0-9a-f]{7,40}|dev))(-dirty)?$`)

// PythonVersion turns a version of git describe into one of Python's (PEP 440): v1.2.0-rc.1 is 1.2.0rc1, what is 4 commits behind a
// tag is its .post4, and what has no tag is 0.0.0. The commit follows behind a plus.
func PythonVersion(version string) (string, error) {
	m := described.FindStringSubmatch(version)
	if m == nil {
		return "", fmt.Errorf("make a Python version of %q: want a tag such as v1.2.3 or v1.2.3-rc.1, or what git describe makes of it", version)
	}
	base, pre, preNumber, commits, commit, bare, dirty := m[1], m[2], m[3], m[4], m[5], m[6], m[7]
	var local []string
	switch {
	case bare == "dev":
		base, local = "0.0.0", []string{bare}
	case bare != "":
		base, local = "0.0.0", []string{"g" + bare}
	case commits != "":
		local = []string{"g" + commit}
	}
	if pre != "" {
		base += map[string]string{"alpha": "a", "beta": "b"}[pre]
		if pre != "alpha" && pre != "beta" {
			base += pre
		}
		base += preNumber
	}
	if commits != "" {
		base += ".post" + commits
	}
	if dirty != "" {
		local = append(local, "dirty")
	}
	if len(local) > 0 {
		base += "+" + strings.Join(local, ".")
	}
	return base, nil
}
