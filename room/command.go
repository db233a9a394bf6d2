package room

import (
	"context"
	"flag"
	"io"
)

// Command is a command of the program orderclose, or a group of commands.
type Command struct {
	Use, Short, Long, Example string    // for orderclose help
	Commands                  []Command // of a group, which has nothing of what follows
	Variables                 []string  // environment variables that the command requires; they name Kafka and the database
	Progress                  string    // what the command does with each thing, such as audited
	// Acts says that the command changes something with its flag yes, which New adds. The audit log then has it.
	Acts bool
	// New adds the flags of the command. When they are parsed, the function that it returns checks them, and returns what
	// runs. Its error is one of usage.
	New func(flags *flag.FlagSet) func() (Run, error)
}

// Run runs a command, which changes nothing unless Command.Acts is set. The Host has Config, and the clients that Variables names.
type Run func(ctx context.Context, h Host, progress func(done, total int64, step string)) (Result, error)

// Result is what a command prints.
type Result struct {
	JSON     any               // with -o json
	Table    func(w io.Writer) // its columns are separated by tabs
	Findings string            // why the command exits with 3; "": it has found nothing
}
