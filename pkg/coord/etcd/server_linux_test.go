package etcd

import (
	"os/exec"
	"syscall"
)

// dieWithUs ends a process with this one, where no cleanup can.
func killWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
