package release

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/elasticrun/elasticrun/internal/lazyregexp"
)

// Version is the semantic version of a release, of a prerelease, or of a commit between releases.
type Version struct {
	major, minor, patch int
	// stage is alpha, beta or rc; empty for a release and for a commit on the way to one. stageNumber is its number.
	stage       string
	stageNumber int
	// development says that no tag names this source. Then commits is the number of commits since the last tag, or 0 if it
	// is not known.
	development bool
	commits     int
	// build identifies the source: the commit, and "dirty" if the source differs from the commit.
	build []string
}

// semantic matches what ParseVersion accepts.
var semantic = lazyregexp.New(
	`^v?(\d+)\.(\d+)\.(\d+)(?:-(alpha|beta|rc)\.?(\d+)(?:\.dev\.(\d+))?|-dev\.(\d+))?(?:\+([0-9a-z]+(?:\.[0-9a-z]+)*))?$`,
)

// ParseVersion reads a tag such as v1.2.3 or v1.2.3-rc.1, or what String returns.
func ParseVersion(text string) (Version, error) {
	m := semantic().FindStringSubmatch(text)
	if m == nil {
		return Version{}, fmt.Errorf("version %q: must be a version such as 1.2.3, 1.2.3-rc.1 or 1.2.3-dev.4+gabcdef0", text)
	}
	commits := m[6] + m[7] // at most one of them
	v := Version{stage: m[4], development: commits != ""}
	for _, number := range []struct {
		into *int
		text string
	}{{&v.major, m[1]}, {&v.minor, m[2]}, {&v.patch, m[3]}, {&v.stageNumber, m[5]}, {&v.commits, commits}} {
		if number.text == "" {
			continue
		}
		var err error
		if *number.into, err = strconv.Atoi(number.text); err != nil {
			return Version{}, fmt.Errorf("version %q: %w", text, err)
		}
	}
	if m[8] != "" {
		v.build = strings.Split(m[8], ".")
	}
	return v, nil
}

// source describes the source in a folder, as git knows it.
type source struct {
	tag     string // the last tag before the commit; empty without one
	commits int    // since the tag, or since the first commit; 0 if not known
	commit  string // abbreviated; empty without git
	dirty   bool   // differs from the commit
}

// versionOf returns the version of the source. Only the very commit of a tag has the tag's version. Every other commit
// has a development version on the way to next, the version of the next release. If the tag is a prerelease, or not
// older than next, the version continues from the tag instead.
func versionOf(s source, next Version) (Version, error) {
	v := next
	if s.tag != "" {
		tag, err := ParseVersion(s.tag)
		if err != nil {
			return Version{}, fmt.Errorf("tag of commit %s: %w", s.commit, err)
		}
		switch {
		case s.commits == 0 && !s.dirty:
			return tag, nil
		case tag.stage != "": // 1.0.0-rc.1 and its commits come before 1.0.0-rc.2
			v = tag
		case !tag.before(next):
			v = tag
			v.patch++
		}
	}
	v.development, v.commits = true, s.commits
	if s.commit != "" {
		v.build = append(v.build, "g"+s.commit)
	}
	if s.dirty {
		v.build = append(v.build, "dirty")
	}
	return v, nil
}

// before reports whether v's major, minor and patch numbers are lower than w's.
func (v Version) before(w Version) bool {
	return slices.Compare([]int{v.major, v.minor, v.patch}, []int{w.major, w.minor, w.patch}) < 0
}

// form writes the version with these separators. stage stands before the number of the stage. Of a development version,
// afterStage stands before the number of commits since a stage, and afterPatch before the commits since a release.
func (v Version) form(stage, afterStage, afterPatch string) string {
	text, separator := fmt.Sprintf("%d.%d.%d", v.major, v.minor, v.patch), afterPatch
	if v.stage != "" {
		text += stage + strconv.Itoa(v.stageNumber)
		separator = afterStage
	}
	if v.development {
		text += separator + strconv.Itoa(v.commits)
	}
	if len(v.build) > 0 {
		text += "+" + strings.Join(v.build, ".")
	}
	return text
}

// String returns the semantic version, such as 1.2.3, 1.2.3-rc.1 and 1.2.3-dev.4+gabcdef0 (https://semver.org).
func (v Version) String() string { return v.form("-"+v.stage+".", ".dev.", "-dev.") }

// Python returns the version of the wheel, such as 1.2.3, 1.2.3rc1 and 1.2.3.dev4+gabcdef0 (PEP 440). The commits after
// 1.2.3rc1 are posts, because 1.2.3rc1.dev4 would come before it.
func (v Version) Python() string {
	return v.form(map[string]string{"alpha": "a", "beta": "b", "rc": "rc"}[v.stage], ".post", ".dev")
}

// Debian returns the version of the Debian package, such as 1.2.3, 1.2.3~rc1 and 1.2.3~dev4+gabcdef0. A tilde sorts
// before the end.
func (v Version) Debian() string { return v.form("~"+v.stage, ".", "~dev") }
