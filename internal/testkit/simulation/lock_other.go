//go:build !unix

package simulation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// lockFile takes the file for this process until it is released. A process that
// was killed leaves it behind, to be removed by hand.
func lockFile(path string) (release func() error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%w; if none does, remove %s", ErrFolderInUse, path)
	}
	if err != nil {
		return nil, err
	}
	return func() error { return errors.Join(f.Close(), os.Remove(path)) }, nil
}
