package config

import (
	"fmt"
	"io"
	"io/fs"
	"os"
)

// The largest files that are read, in bytes.
const (
	MaxFile   = 1 << 20  // a configuration, or certificates
	MaxSecret = 64 << 10 // a file that holds one secret
)

// ReadFile reads a file of at most limit bytes. Its errors are of type *fs.PathError, as those of os.ReadFile.
func ReadFile(name string, limit int64) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if int64(len(data)) > limit {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("it is larger than %d KiB", limit>>10)}
	}
	return data, err
}
