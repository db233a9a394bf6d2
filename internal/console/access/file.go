package access

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	// rereadInterval is for how long the content of a file is used before it is read again. A user
	// who is removed from the file is refused after that time.
	rereadInterval = time.Second
	// maxFile is the largest file, in bytes: thousands of users.
	maxFile = 1 << 20
)

// file is a file of users. It is read again when it is used. While it cannot be read, or has a
// mistake, the last valid content is used, and the log has the error once. Create it with
// openFile. It is safe for concurrent use.
type file[T any] struct {
	variable string // the environment variable that names the file
	path     string
	parse    func(text string) (T, error)
	logger   *slog.Logger

	mu     sync.Mutex
	read   time.Time // when it was read last
	data   []byte    // what was read last without an error of reading
	value  T
	failed string // the error of the last read; "": there was none
}

// openFile reads a file. The error names the variable and the line of each mistake, and quotes
// nothing of the file.
func openFile[T any](variable, path string, logger *slog.Logger, parse func(text string) (T, error)) (*file[T], error) {
	f := &file[T]{variable: variable, path: path, parse: parse, logger: logger}
	return f, f.update()
}

// get returns the users of the file.
func (f *file[T]) get() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.read) < rereadInterval {
		return f.value
	}
	before := f.failed
	switch err := f.update(); {
	case err != nil && err.Error() != before:
		f.failed = err.Error()
		f.logger.Error("users rejected, keeping the previous ones", "err", err)
	case err == nil && before != "":
		f.failed = ""
		f.logger.Info("users valid again", "variable", f.variable)
	}
	return f.value
}

// update reads the file, and parses it if its content has changed.
func (f *file[T]) update() error {
	f.read = time.Now()
	data, err := readFile(f.path)
	if err != nil {
		return fmt.Errorf("%s names a file that cannot be read: %w; mount the file there or unset the variable", f.variable, err)
	}
	if f.data != nil && bytes.Equal(data, f.data) {
		return nil
	}
	value, err := f.parse(string(data))
	if err != nil {
		return fmt.Errorf("%s: %w", f.variable, err)
	}
	if f.data != nil {
		f.logger.Info("users changed", "variable", f.variable)
	}
	f.data, f.value = data, value
	return nil
}

// readFile reads a file of at most maxFile bytes. The error does not quote the name, which may be
// a misplaced secret.
func readFile(name string) ([]byte, error) {
	opened, err := os.Open(name)
	if err == nil {
		defer opened.Close()
		var data []byte
		if data, err = io.ReadAll(io.LimitReader(opened, maxFile+1)); len(data) > maxFile {
			return nil, errors.New("it is larger than 1 MiB")
		} else if err == nil {
			return data, nil
		}
	}
	if wrapped, ok := errors.AsType[*fs.PathError](err); ok {
		err = wrapped.Err
	}
	return nil, err
}

// errNoUsers means that a file names no user: nobody could open the console.
var errNoUsers = errors.New("the file has no users; write a line for each")

// parseLines calls add for each line that is neither empty nor a comment. The errors of add get
// the number of the line.
func parseLines(text string, add func(line string) error) error {
	var errs []error
	n, users := 0, 0
	for line := range strings.Lines(text) {
		n++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		users++
		if err := add(line); err != nil {
			errs = append(errs, fmt.Errorf("line %d: %w", n, err))
		}
	}
	if users == 0 {
		return errNoUsers
	}
	return errors.Join(errs...)
}
