package etcd

import (
	"os/exec"
	"syscall"
)

// killWithParent kills the process when this one dies without cleanup.
func killWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
