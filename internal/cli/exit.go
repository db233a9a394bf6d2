package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Code is what the process exits with.
type Code int

// The exit codes.
const (
	Done     Code = 0
	Failed   Code = 1
	Usage    Code = 2
	Findings Code = 3 // drift, or something that somebody should look at
	NotFound Code = 4
	Refused  Code = 5
	Partly   Code = 6
	TimedOut Code = 7
)

// exitError is an error that decides the exit code.
type exitError struct {
	error
	code Code
}

func (e *exitError) Unwrap() error { return e.error }

// Exit makes err exit with the code. A nil err prints nothing.
func Exit(code Code, err error) error {
	if err == nil {
		err = errors.New("")
	}
	return &exitError{err, code}
}

func codeOf(err error) int {
	var coded *exitError
	switch {
	case err == nil:
		return int(Done)
	case errors.As(err, &coded):
		return int(coded.code)
	case errors.Is(err, context.DeadlineExceeded):
		return int(TimedOut)
	}
	return int(Failed)
}

// oneArg wants just one argument, and says what it is.
func oneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return Exit(Usage, fmt.Errorf("%s wants one argument, %s, and got %d: see orderclose %[1]s --help", strings.TrimPrefix(cmd.CommandPath(), "orderclose "), what, len(args)))
		}
		return nil
	}
}

// usageArgs makes wrong arguments exit with Usage.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return Exit(Usage, err)
		}
		return nil
	}
}
