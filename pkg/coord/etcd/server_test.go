package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

func TestMain(m *testing.M) {
	code := m.Run()
	shared.stop()
	if code == 0 {
		if err := goleak.Find(ignoreServer()...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// ignoreServer returns what etcd's server leaves behind in a process for good.
func ignoreServer() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreTopFunction("go.etcd.io/etcd/client/pkg/v3/fileutil.purgeFile.func1"),
		goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"),
	}
}

// shared is the embedded etcd of all tests of this process, started by the first that needs it.
var shared embedded

type embedded struct {
	once sync.Once
	etcd *embed.Etcd
	dir  string
	err  error
}

// endpoint returns the URL of the embedded etcd.
func (e *embedded) endpoint(t testing.TB) string {
	t.Helper()
	e.once.Do(func() {
		//nolint:usetesting // it outlives the test
		if e.dir, e.err = os.MkdirTemp("", "elasticrun-etcd-"); e.err == nil {
			e.etcd, e.err = startEmbedded(e.dir)
		}
	})
	if e.err != nil {
		t.Fatal(e.err)
	}
	return "http://" + e.etcd.Clients[0].Addr().String()
}

func (e *embedded) stop() {
	if e.etcd != nil {
		e.etcd.Close()
		<-e.etcd.Server.StopNotify()
	}
	if e.dir != "" {
		os.RemoveAll(e.dir)
	}
}

func startEmbedded(dir string, more ...func(*embed.Config)) (*embed.Etcd, error) {
	anywhere, err := url.Parse("http://127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	config := embed.NewConfig()
	config.Dir = dir
	config.ListenClientUrls, config.ListenPeerUrls = []url.URL{*anywhere}, []url.URL{*anywhere}
	config.AdvertiseClientUrls, config.AdvertisePeerUrls = []url.URL{*anywhere}, []url.URL{*anywhere}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	config.UnsafeNoFsync = true // it is not the disk that is tested
	for _, change := range more {
		change(config)
	}
	e, err := embed.StartEtcd(config)
	if err != nil {
		return nil, err
	}
	select {
	case <-e.Server.ReadyNotify():
		return e, nil
	case err = <-e.Err():
	case <-time.After(time.Minute):
		err = errors.New("the embedded etcd is not ready after a minute")
	}
	e.Close()
	return nil, err
}

// child is an etcd in a process of its own, which a test can kill and start again.
type child struct {
	t      testing.TB
	args   []string
	client string // URL
	log    *bytes.Buffer
	cmd    *exec.Cmd
}

// startChildren starts a cluster of etcd's own program, as Debian has it.
func startChildren(t testing.TB, n int, more ...string) []*child {
	t.Helper()
	program, err := exec.LookPath("etcd")
	if err != nil {
		testenv.Missing(t, "needs the program etcd (apt-get install etcd-server)")
	}
	scheme := "http"
	for _, arg := range more {
		if strings.HasPrefix(arg, "--cert-file") {
			scheme = "https"
		}
	}
	var cluster []string
	children := make([]*child, n)
	peers := make([]string, n)
	for i, address := range freeAddresses(t, 2*n) {
		if i < n {
			peers[i] = "http://" + address
			cluster = append(cluster, fmt.Sprintf("m%d=%s", i, peers[i]))
			continue
		}
		children[i-n] = &child{t: t, client: scheme + "://" + address}
	}
	for i, c := range children {
		c.args = append([]string{
			program, "--name", fmt.Sprint("m", i), "--data-dir", t.TempDir(),
			"--listen-client-urls", c.client, "--advertise-client-urls", c.client,
			"--listen-peer-urls", peers[i], "--initial-advertise-peer-urls", peers[i],
			"--initial-cluster", strings.Join(cluster, ","), "--logger", "zap",
		}, more...)
		c.start()
	}
	return children
}

// freeAddresses returns addresses that nobody listens at.
func freeAddresses(t testing.TB, n int) []string {
	t.Helper()
	var addresses []string
	var listeners []net.Listener // all open until there are enough
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, l)
		addresses = append(addresses, l.Addr().String())
	}
	for _, l := range listeners {
		l.Close()
	}
	return addresses
}

func (c *child) start() {
	c.t.Helper()
	c.log = new(bytes.Buffer)
	c.cmd = exec.CommandContext(context.WithoutCancel(c.t.Context()), c.args[0], c.args[1:]...)
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	dieWithUs(c.cmd)
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	cmd := c.cmd
	c.t.Cleanup(func() {
		if cmd.ProcessState == nil {
			c.kill(cmd)
		}
	})
}

// kill ends it as a power cut does.
func (c *child) kill(cmd *exec.Cmd) {
	cmd.Process.Kill()
	cmd.Wait()
	if c.t.Failed() && testing.Verbose() {
		c.t.Logf("etcd at %s, the end of its log:\n%s", c.client, c.log.Bytes()[max(0, c.log.Len()-3000):])
	}
}

// ready waits until the members answer.
func ready(t testing.TB, children ...*child) *clientv3.Client {
	t.Helper()
	var endpoints []string
	for _, c := range children {
		endpoints = append(endpoints, c.client)
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
