//go:build !unix

package pipelinetest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// lockFile locks the folder for this process until release is called. A process that was
// killed leaves the file behind, and an operator has to remove it.
func lockFile(path string) (release func() error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%w; if no process does, remove %s", ErrFolderInUse, path)
	}
	if err != nil {
		return nil, err
	}
	return func() error { return errors.Join(f.Close(), os.Remove(path)) }, nil
}
