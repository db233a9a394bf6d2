package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/ops/deadletters"
)

func newDLQ(c *common) *cobra.Command {
	dlq := &cobra.Command{
		Use:   "dlq",
		Short: "List dead letters, send them again, or discard them",
		Long: `List dead letters, send them again, or discard them.

A dead letter is pending until it is redriven or discarded; a mark in the dead-letter
topic records that. These commands delete nothing: retention deletes dead letters after
90 days.`,
	}
	dlq.AddCommand(newDLQList(c), newDLQShow(c), newDLQRedrive(c), newDLQDiscard(c))
	return dlq
}

// deadLetters opens the topic. The caller must close the session.
func (c *common) deadLetters(ctx context.Context) (*session, *deadletters.Topic, error) {
	s, err := c.openKafka(ctx)
	if err != nil {
		return nil, nil, err
	}
	bar := c.progress("read")
	return s, &deadletters.Topic{
		Log: s.Kafka, Name: s.cfg.Topics.DeadLetter,
		Progress: func(done, total int64) {
			if total > 10_000 { // fewer are read at once
				bar.Show(done, total, "")
			}
			if done == total && total > 10_000 {
				bar.End()
			}
		},
	}, nil
}

// pendingLine describes the numbers of pending dead letters.
func pendingLine(counts map[string]int) string {
	total := 0
	var parts []string
	for _, cause := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[cause]; n > 0 {
			total += n
			parts = append(parts, fmt.Sprintf("%d %s", n, causeName(cause)))
		}
	}
	if total == 0 {
		return "none pending"
	}
	return fmt.Sprintf("%d pending: %s", total, strings.Join(parts, ", "))
}

func causeName(cause string) string { return cmp.Or(cause, "without a cause") }

func from(s deadletters.Source) string {
	return fmt.Sprintf("%s/%d/%d", s.Topic, s.Partition, s.Offset)
}

// oneLine quotes control characters of a text from outside, and cuts it to n characters.
func oneLine(s string, n int) string {
	quoted := fmt.Sprintf("%q", s)
	shown := strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
	if runes := []rune(shown); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return shown
}

// oneLines joins texts from outside, each as oneLine returns it.
func oneLines(texts []string, n int, separator string) string {
	shown := make([]string, len(texts))
	for i, text := range texts {
		shown[i] = oneLine(text, n)
	}
	return strings.Join(shown, separator)
}
