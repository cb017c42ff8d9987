package release

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// untar returns the files in a tar file.
func untar(t *testing.T, from io.Reader) map[string]string {
	t.Helper()
	files := make(map[string]string)
	for archive := tar.NewReader(from); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(data)
		want := int64(0o644)
		if h.Name == "elasticrun" {
			want = 0o755
		}
		if h.Mode != want || h.Uid != 0 || h.ModTime.Unix() != 1_700_000_001 {
			t.Errorf("%s: mode %o, owner %d, date %v", h.Name, h.Mode, h.Uid, h.ModTime)
		}
	}
}

// imageReader reads an image layout, and checks each blob against its descriptor.
type imageReader struct {
	t     *testing.T
	files map[string]string
	used  int
}

func (r *imageReader) blob(d descriptor) string {
	r.t.Helper()
	data, ok := r.files["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
	if !ok || len(data) != d.Size || digest([]byte(data)) != d.Digest {
		r.t.Fatalf("blob %s: there is %v, size %d of %d, digest %s", d.Digest, ok, len(data), d.Size, digest([]byte(data)))
	}
	r.used++
	return data
}

func (r *imageReader) decode(text string, into any) {
	r.t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		r.t.Fatal(err)
	}
}

// TestImage follows the image layout from its index to the files in the layer, and runs the image's command.
func TestImage(t *testing.T) {
	layout := func(dist string) string { return read(t, dist, filepath.Base(onlyFile(t, dist, "*-oci.tar"))) }
	tarball := layout(makeRelease(t, "image"))
	if testenv.Whole(t) && tarball != layout(makeRelease(t, "image")) {
		t.Error("the same source, version and date make another image")
	}
	r := &imageReader{t: t, files: untar(t, strings.NewReader(tarball))}
	if r.files["oci-layout"] != `{"imageLayoutVersion":"1.0.0"}` {
		t.Errorf("oci-layout: %s", r.files["oci-layout"])
	}
	var top, all index
	r.decode(r.files["index.json"], &top)
	if ref := top.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; ref != "1.2.3-dev.4-gabcdef0" {
		t.Errorf("the image is called %q", ref)
	}
	r.decode(r.blob(top.Manifests[0]), &all)
	if len(top.Manifests) != 1 || len(all.Manifests) != 1 || *all.Manifests[0].Platform != (platform{Host().Arch, "linux"}) {
		t.Fatalf("want one index of one image: %+v, %+v", top, all)
	}
	var image manifest
	var config imageConfig
	r.decode(r.blob(all.Manifests[0]), &image)
	r.decode(r.blob(image.Config), &config)
	if got := image.Annotations["org.opencontainers.image.version"]; got != testVersion {
		t.Errorf("version %q", got)
	}
	zipped, err := gzip.NewReader(strings.NewReader(r.blob(image.Layers[0])))
	if err != nil {
		t.Fatal(err)
	}
	layer, err := io.ReadAll(zipped)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{digest(layer)}, config.RootFS.DiffIDs); diff != "" {
		t.Errorf("layers (-want +got):\n%s", diff)
	}
	if r.used+2 != len(r.files) {
		t.Errorf("%d blobs are used, and there are %d files", r.used, len(r.files))
	}
	files := untar(t, bytes.NewReader(layer))
	if len(files) != 2 || files["LICENSE"] != read(t, "../..", "LICENSE") {
		t.Errorf("the layer has %d files, or another license", len(files))
	}
	if config.Config.User != imageUser {
		t.Errorf("user %s", config.Config.User)
	}
	runImage(t, files["elasticrun"], append(config.Config.Entrypoint, config.Config.Cmd...))
}

// runImage runs the image's command in a folder that has nothing but the binary, as the image's user.
func runImage(t *testing.T, binary string, command []string) {
	t.Helper()
	root := t.TempDir()
	if err := os.Chmod(root, 0o755); err != nil { //nolint:gosec // another user runs the binary
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "elasticrun"), []byte(binary), 0o755); err != nil { //nolint:gosec // as in the image
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/elasticrun", "store", "--listen=:29400"}, command); diff != "" {
		t.Fatalf("command (-want +got):\n%s", diff)
	}
	cmd := exec.CommandContext(t.Context(), command[0], command[1], "--listen=127.0.0.1:0")
	var stderr bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stderr = "/", []string{}, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	if os.Getuid() != 0 {
		ids := func(id int) []syscall.SysProcIDMap {
			return []syscall.SysProcIDMap{{ContainerID: 65532, HostID: id, Size: 1}}
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Chroot: root, Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids(os.Getuid()), GidMappings: ids(os.Getgid()),
		}
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); errors.Is(err, syscall.EPERM) {
		testenv.Missing(t, "needs root or a user namespace: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	ready, err := bufio.NewReader(stdout).ReadString('\n')
	address, listening := strings.CutPrefix(strings.TrimSpace(ready), "store listening on ")
	if !listening {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatalf("%q, %v; stderr %s", ready, err, stderr.String())
	}
	addOne(t, address)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the store ended with %v; stderr %s", err, stderr.String())
	}
}

// addOne adds 5 to a key of a store, in the protocol of torch 1.13.
func addOne(t *testing.T, address string) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	reply := make([]byte, 8)
	_, err = conn.Write([]byte("\x03\x01\x00\x00\x00\x00\x00\x00\x00n\x05\x00\x00\x00\x00\x00\x00\x00"))
	if err == nil {
		_, err = io.ReadFull(conn, reply)
	}
	if err != nil || reply[0] != 5 {
		t.Errorf("the store answers %v, %v", reply, err)
	}
}
