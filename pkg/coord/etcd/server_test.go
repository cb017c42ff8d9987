package etcd

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

func TestMain(m *testing.M) {
	// The tests wait for timeouts far more than they compute. An explicit -parallel flag, parsed later, overrides this.
	if err := flag.Set("test.parallel", "32"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		shared.stop()
		os.Exit(code)
	}))
}

// shared is the server of all tests that need no server of their own. The first such test starts it.
var shared sharedServer

type sharedServer struct {
	once   sync.Once
	dir    string
	server *server
}

// endpoint returns the URL of the shared server, which answers.
func (s *sharedServer) endpoint(t testing.TB) string {
	t.Helper()
	program := testenv.EtcdServer(t)
	s.once.Do(func() {
		dir, err := os.MkdirTemp("", "elasticrun-etcd-") //nolint:usetesting // it outlives the test
		if err != nil {
			t.Fatal(err)
		}
		s.dir = dir
		s.server = newServers(t, program, []string{dir}, "--unsafe-no-fsync")[0]
		s.server.start(t)
	})
	if s.server == nil {
		t.Fatal("the shared etcd server was not started: see the first test that needed it")
	}
	waitReady(t, s.server)
	return s.server.client
}

func (s *sharedServer) stop() {
	if s.server != nil && s.server.cmd != nil {
		s.server.kill()
	}
	if s.dir != "" {
		os.RemoveAll(s.dir)
	}
}

// server is an etcd server in a process of its own, which a test can kill and start again.
type server struct {
	args   []string
	dir    string // of its data and its log
	client string // URL
	cmd    *exec.Cmd
}

// startEtcd starts one server of the version that internal/e2e/etcdserver names, and waits until it answers.
func startEtcd(t testing.TB, args ...string) *server {
	t.Helper()
	s := startServers(t, testenv.EtcdServer(t), 1, append(args, "--unsafe-no-fsync")...)[0]
	waitReady(t, s)
	return s
}

// startDebian starts a cluster of n members of Debian's etcd, which is 3.4 on Debian 12, the oldest supported version.
func startDebian(t testing.TB, n int, args ...string) []*server {
	t.Helper()
	program, err := exec.LookPath("etcd")
	if err != nil {
		testenv.Missing(t, "needs the program etcd (apt-get install etcd-server)")
	}
	return startServers(t, program, n, args...)
}

// startServers starts a cluster of n members, which end with the test.
func startServers(t testing.TB, program string, n int, args ...string) []*server {
	t.Helper()
	dirs := make([]string, n)
	for i := range dirs {
		dirs[i] = t.TempDir()
	}
	servers := newServers(t, program, dirs, args...)
	for _, s := range servers {
		t.Cleanup(func() {
			if s.cmd != nil {
				s.kill()
			}
			if log, err := os.ReadFile(s.log()); err == nil && t.Failed() && testing.Verbose() {
				t.Logf("etcd at %s, the end of its log:\n%s", s.client, log[max(0, len(log)-3000):])
			}
		})
		s.start(t)
	}
	return servers
}

// newServers returns the members of a cluster, one for each folder, which have not been started.
func newServers(t testing.TB, program string, dirs []string, args ...string) []*server {
	t.Helper()
	scheme := "http"
	for _, arg := range args {
		if strings.HasPrefix(arg, "--cert-file") {
			scheme = "https"
		}
	}
	addresses := freeAddresses(t, 2*len(dirs))
	var cluster []string
	for i := range dirs {
		cluster = append(cluster, fmt.Sprintf("m%d=http://%s", i, addresses[2*i]))
	}
	var servers []*server
	for i, dir := range dirs {
		s := &server{dir: dir, client: scheme + "://" + addresses[2*i+1]}
		peer := "http://" + addresses[2*i]
		s.args = append([]string{
			program, "--name", fmt.Sprint("m", i), "--data-dir", s.data(),
			"--listen-client-urls", s.client, "--advertise-client-urls", s.client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--initial-cluster", strings.Join(cluster, ","), "--logger", "zap",
		}, args...)
		servers = append(servers, s)
	}
	return servers
}

func (s *server) data() string { return filepath.Join(s.dir, "data") }
func (s *server) log() string  { return filepath.Join(s.dir, "log") }

// start starts the server's process and does not wait until it answers.
func (s *server) start(t testing.TB) {
	t.Helper()
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), s.args[0], s.args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	killWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.cmd = cmd
}

// kill ends the process as a power cut does.
func (s *server) kill() {
	s.cmd.Process.Kill()
	s.cmd.Wait()
	s.cmd = nil
}

// freeAddresses returns addresses at which servers of the test can listen, as often as they are restarted.
func freeAddresses(t testing.TB, n int) []string {
	t.Helper()
	var addresses []string
	for range n {
		addresses = append(addresses, fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t)))
	}
	return addresses
}

// waitReady waits until the members answer.
func waitReady(t testing.TB, servers ...*server) *clientv3.Client {
	t.Helper()
	var endpoints []string
	for _, s := range servers {
		endpoints = append(endpoints, s.client)
	}
	cli, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cli.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		once, cancelOnce := context.WithTimeout(ctx, 5*time.Second)
		_, err := cli.Put(once, "ready", "")
		cancelOnce()
		if err == nil {
			return cli
		}
		if ctx.Err() != nil {
			t.Fatalf("etcd at %v is not ready after a minute: %v", endpoints, err)
		}
	}
}
