package topology

import (
	"testing"
	"testing/fstest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// files returns the file system of a machine, from path to content.
func files(content map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for name, text := range content {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}

// environment returns an os.LookupEnv that reads a map.
func environment(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := vars[name]
		return value, ok
	}
}

// errorText returns the text of err, or "" for nil, so that a table can name the error.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
