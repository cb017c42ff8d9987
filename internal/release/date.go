package release

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// SourceDate returns the date of the files of a release: SOURCE_DATE_EPOCH of the environment, in seconds since 1970,
// or else the date of the commit. Without a git repository it is the date of CHANGELOG.md. lookup has the signature of
// [os.LookupEnv].
func SourceDate(ctx context.Context, root string, lookup func(string) (string, bool)) (time.Time, error) {
	text, set := lookup("SOURCE_DATE_EPOCH")
	if !set && !isRepository(root) {
		info, err := os.Stat(filepath.Join(root, "CHANGELOG.md"))
		if err != nil {
			return time.Time{}, fmt.Errorf("find the date of the source: %w", err)
		}
		return info.ModTime().Truncate(time.Second), nil
	}
	if !set {
		var err error
		if text, err = git(ctx, root, "log", "-1", "--format=%ct"); err != nil {
			return time.Time{}, fmt.Errorf("ask git for the date of the commit (or set SOURCE_DATE_EPOCH): %w", err)
		}
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH=%s: must be a number of seconds since 1970", text)
	}
	return time.Unix(seconds, 0), nil
}
