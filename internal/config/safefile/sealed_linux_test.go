package safefile

import "testing"

func TestSealedMount(t *testing.T) {
	const ext4, tmpfs, ramfs, overlay = 0xef53, 0x01021994, 0x858458f6, 0x794c7630
	const readOnly, noExec = 1, 8
	for _, tt := range []struct {
		name          string
		fsType, flags int64
		want          bool
	}{
		{"the kubelet's Secret volume, as a container sees it", tmpfs, readOnly | 0x20, true},
		{"systemd's credentials", ramfs, readOnly | noExec, true},
		{"/dev/shm", tmpfs, noExec, false},
		{"a folder of /run, made by systemd without the right to mount", tmpfs, 0, false},
		{"a read-only disk", ext4, readOnly, false},
		{"a read-only container image", overlay, readOnly, false},
	} {
		if got := sealedMount(tt.fsType, tt.flags); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
