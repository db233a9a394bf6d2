package process

import (
	"os/exec"
	"syscall"
)

// EndWithParent lets the kernel kill the command's process when this one dies.
func EndWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
