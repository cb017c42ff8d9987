package topology

import (
	"testing"
	"testing/fstest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// files describes a machine: path to content.
func files(content map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for name, text := range content {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}

// environment is an os.LookupEnv over a map.
func environment(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := vars[name]
		return value, ok
	}
}

// errorText is "" for no error, so that a table can name the error it wants.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
