package retry

import (
	"errors"
	"fmt"
)

// WithCauses returns an error that wraps err and the causes. Its text names each cause once: a cause
// that err wraps already is not added.
func WithCauses(err error, causes ...error) error {
	for i := len(causes) - 1; i >= 0; i-- {
		if !errors.Is(err, causes[i]) {
			err = fmt.Errorf("%w: %w", causes[i], err)
		}
	}
	return err
}
