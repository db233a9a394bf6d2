package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/pipeline"
)

// Code is an exit code of the process.
type Code int

// The exit codes.
const (
	Done     Code = 0
	Failed   Code = 1
	Usage    Code = 2
	Findings Code = 3 // drift, or findings that a person should read
	NotFound Code = 4
	Refused  Code = 5
	Partly   Code = 6
	TimedOut Code = 7
	Fenced   Code = 8 // another process has the same instance: a restart would end that one
)

type exitError struct {
	error
	code Code
}

func (e *exitError) Unwrap() error { return e.error }

// Exit returns err with an exit code.
func Exit(code Code, err error) error { return &exitError{err, code} }

// exitIf returns an error with an exit code if wrong is set, and nil otherwise.
func exitIf(wrong bool, code Code, format string, args ...any) error {
	if !wrong {
		return nil
	}
	return Exit(code, fmt.Errorf(format, args...))
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
	case errors.Is(err, pipeline.ErrFenced):
		return int(Fenced)
	}
	return int(Failed)
}

// errInterrupted is the error of a command that a signal ended.
var errInterrupted = errors.New("interrupted")

// interrupted returns errInterrupted for an error that a signal caused, and err otherwise.
func interrupted(ctx context.Context, err error) error {
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return errInterrupted
	}
	return err
}

// oneArg accepts exactly one argument; what describes it in the error.
func oneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s wants one argument, %s, and got %d: see orderclose %[1]s --help",
				strings.TrimPrefix(cmd.CommandPath(), "orderclose "), what, len(args))
		}
		return nil
	}
}

// group returns a command that only has subcommands.
func group(use, short string, subcommands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short}
	cmd.AddCommand(subcommands...)
	return cmd
}

// complete gives a command and its subcommands what all have: without Args a command takes no argument,
// wrong arguments have the exit code Usage, and a command that only has subcommands prints its help.
func complete(cmd *cobra.Command) {
	check := cmd.Args
	if check == nil {
		check = cobra.NoArgs
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return Exit(Usage, err)
		}
		return nil
	}
	if cmd.RunE == nil {
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	for _, sub := range cmd.Commands() {
		complete(sub)
	}
}
