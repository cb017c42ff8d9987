package testenv

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// EtcdServer returns the path of the etcd server program, in the version that internal/e2e/etcdserver/go.mod names.
// The first test that needs it builds it into the user's cache folder. It skips the test if the server cannot be
// built, for example because its modules cannot be downloaded.
func EtcdServer(t testing.TB) string {
	t.Helper()
	path, err := etcdServer()
	if err != nil {
		Missing(t, "needs the etcd server of internal/e2e/etcdserver: %v", err)
	}
	return path
}

var etcdServer = sync.OnceValues(func() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	module := filepath.Join(root, "internal", "e2e", "etcdserver")
	key := sha256.New()
	_, _ = fmt.Fprintln(key, runtime.Version(), runtime.GOARCH)
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", err
		}
		_, _ = key.Write(content)
	}
	path := filepath.Join(cache(), "test", fmt.Sprintf("etcd-%x", key.Sum(nil)[:8]), "etcd")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return path, build(module, "go.etcd.io/etcd/server/v3", path)
})
