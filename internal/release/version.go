package release

import (
	"fmt"
	"regexp"
	"strings"
)

// described matches the output of git describe --tags --always --dirty: a tag, and the number of commits since the
// tag with the last commit; or, without a tag, only the commit.
var described = regexp.MustCompile(
	`^(?:v?(\d+\.\d+\.\d+)(?:-(a|alpha|b|beta|rc)\.?(\d+))?(?:-(\d+)-g([0-9a-f]+))?|([0-9a-f]{7,40}|dev))(-dirty)?$`,
)

// PythonVersion converts a version from git describe to a Python version (PEP 440): v1.2.0-rc.1 becomes 1.2.0rc1, the
// fourth commit after a tag becomes .post4, and a commit without a tag becomes 0.0.0. The commit follows after a plus
// sign.
func PythonVersion(version string) (string, error) {
	m := described.FindStringSubmatch(version)
	if m == nil {
		return "", fmt.Errorf(
			"convert %q to a Python version: it must be a tag such as v1.2.3 or v1.2.3-rc.1, or the output of git describe",
			version,
		)
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
