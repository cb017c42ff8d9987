package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Disk is a small file system that a test can fill and freeze.
type Disk struct {
	// Path is the folder of the disk, for processes of root on this machine.
	Path string

	t      testing.TB
	root   *os.File
	frozen bool
}

// NewDisk makes an ext4 file system of size MiB, at least 4, on a loop device. It mounts the file system in the mount
// namespace of one thread of this process: the machine does not see it, and it ends with the process. It needs root,
// loop devices and mkfs.ext4.
func NewDisk(t testing.TB, size int) *Disk {
	t.Helper()
	Root(t)
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, int64(size)<<20); err != nil {
		t.Fatal(err)
	}
	// -m 0 reserves no blocks for root, because root fills the disk.
	if out, err := exec.CommandContext(t.Context(), "mkfs.ext4", "-q", "-m", "0", image).CombinedOutput(); err != nil {
		Missing(t, "needs mkfs.ext4 (apt-get install e2fsprogs): %v %s", err, out)
	}
	where := mountApart(t, func() error {
		// #nosec G204 -- the command must inherit the namespace of this thread
		if out, err := exec.CommandContext(t.Context(), "mount", "-o", "loop", image, dir).CombinedOutput(); err != nil {
			return fmt.Errorf("mount -o loop: %w: %s", err, out)
		}
		return nil
	})
	d := &Disk{Path: filepath.Join(where, dir), t: t}
	root, err := os.Open(d.Path)
	if err != nil {
		t.Fatal(err)
	}
	d.root = root
	t.Cleanup(func() { _ = root.Close() })
	d.guard()
	t.Cleanup(d.Thaw)
	return d
}

// ioctls of linux/fs.h.
const fiFreeze, fiThaw = 0xC0045877, 0xC0045878

// Freeze makes every process that writes to the disk hang in the kernel, where SIGKILL has no effect, until Thaw.
func (d *Disk) Freeze() {
	d.t.Helper()
	if err := unix.IoctlSetInt(int(d.root.Fd()), fiFreeze, 0); err != nil {
		Missing(d.t, "needs a disk that can be frozen: %v", err)
	}
	d.frozen = true
}

// Thaw undoes Freeze.
func (d *Disk) Thaw() {
	d.t.Helper()
	if !d.frozen {
		return
	}
	if err := unix.IoctlSetInt(int(d.root.Fd()), fiThaw, 0); err != nil {
		d.t.Errorf("thaw the disk: %v", err)
	}
	d.frozen = false
}

// guard starts a process that thaws the disk if this process is killed, because nobody could thaw it later.
func (d *Disk) guard() {
	d.t.Helper()
	const thaw = "import fcntl, sys; sys.stdin.read(); fcntl.ioctl(3, 0xC0045878, 0)"
	cmd := exec.Command("/usr/bin/python3", "-c", thaw) //nolint:noctx // the command outlives the test's context
	cmd.ExtraFiles = []*os.File{d.root}
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		Missing(d.t, "needs python3 to end what hangs: %v", err)
	}
	d.t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait() // returns an error, because the disk is not frozen
	})
}

// Fill writes until the disk has no room left.
func (d *Disk) Fill() {
	d.t.Helper()
	f, err := os.Create(filepath.Join(d.Path, "filler"))
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	for length, size := int64(0), int64(1<<30); size >= 1<<12; {
		switch err := unix.Fallocate(int(f.Fd()), 0, length, size); {
		case err == nil:
			length += size
		case errors.Is(err, unix.ENOSPC):
			size /= 2
		case !errors.Is(err, unix.EINTR):
			d.t.Fatal(err)
		}
	}
}

// Free undoes Fill.
func (d *Disk) Free() {
	d.t.Helper()
	if err := os.Remove(filepath.Join(d.Path, "filler")); err != nil {
		d.t.Fatal(err)
	}
}
