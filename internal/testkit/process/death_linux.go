package process

import (
	"os/exec"
	"syscall"
)

// endWithParent lets the kernel kill the command's process when this one dies.
func endWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
