package release

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// SourceDate returns the date of the files of a release: environment's SOURCE_DATE_EPOCH, in seconds since 1970, or the
// date of the commit, or without git that of CHANGELOG.md.
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
