//go:build unix

package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// columns asks a terminal how wide it is; 0 if it does not say.
func columns(terminal *os.File) int {
	size, err := unix.IoctlGetWinsize(int(terminal.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
