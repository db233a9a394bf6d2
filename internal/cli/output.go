package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/orderclose/orderclose/internal/text"
)

// print writes a result in the format of the -o flag: v as one JSON object, or the
// tab-separated columns that table writes.
func (c *common) print(v any, table func(w io.Writer)) error {
	if c.output == "json" {
		return c.encode(v)
	}
	var aligned strings.Builder
	w := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	table(w)
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(c.env.Stdout, text.Harmless(aligned.String()))
	return err
}

// encode writes v as a line of JSON.
func (c *common) encode(v any) error {
	var line strings.Builder
	if err := json.NewEncoder(&line).Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(c.env.Stdout, text.Harmless(line.String()))
	return err
}

// line returns what a row, a record or a server says as a part of one line.
func line(s string) string { return text.OneLine(s, 1000) }

// note writes a line for people to stderr.
func (c *common) note(values ...any) {
	fmt.Fprint(c.env.Stderr, text.Harmless(fmt.Sprintln(values...)))
}

// answer prints a result, or returns the err with which there is none. found are errors that follow from the result: answer returns
// the first that is not nil after it has printed.
func (c *common) answer(v any, err error, table func(w io.Writer), found ...error) error {
	if err != nil {
		return err
	}
	return cmp.Or(c.print(v, table), cmp.Or(found...))
}

// Progress shows the progress of a command that takes long: a line each progressEvery. A nil Progress shows nothing.
type Progress struct {
	w    io.Writer
	what string
	last time.Time
}

// progressEvery is how often a Progress is shown.
const progressEvery = 2 * time.Second

// NewProgress returns a Progress on w.
func NewProgress(w io.Writer, what string) *Progress {
	return &Progress{w, what, time.Now()}
}

// Say says how far the command is.
func (p *Progress) Say(text string) {
	if p != nil && time.Since(p.last) >= progressEvery {
		p.last = time.Now()
		fmt.Fprintln(p.w, p.what, text)
	}
}

// Show says that done of total are done.
func (p *Progress) Show(done, total int64) { p.Say(fmt.Sprintf("%d/%d", done, total)) }

// progress returns a Progress on stderr, or nil with --quiet.
func (c *common) progress(what string) *Progress {
	if c.quiet {
		return nil
	}
	return NewProgress(c.env.Stderr, what)
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
