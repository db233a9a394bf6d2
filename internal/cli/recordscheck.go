package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/wire"
)

func newRecordsCheck(c *common) *cobra.Command {
	var topic string
	var last int64
	cmd := &cobra.Command{
		Use:   "check (FILE | - | --topic TOPIC [--last N])",
		Short: "Say whether relay and closer can read the records of a producer",
		Long: `Decode records as relay and closer do, and say what they could not read: key, headers
and value, every problem of a record that can be told. Nothing is sent. Exits 3 if a
record has a problem.

A record in FILE, or on stdin with -, is a JSON object with key, headers and value, where
headers is an object and value is text or JSON; or the value alone, as in a row of
outbox_schedules; or a line that kcat -J prints. This asks no server.

With --topic it reads the last records of each partition of a topic, and also compares
the partition of each record with the one that Java clients choose for its key.

-o jsonl prints a line for each record at once, -o json one object at the end.`,
		Example: "  orderclose records check records.jsonl\n  orderclose records check --topic delay_5m --last 20\n" +
			`  echo '{"key": "1", "headers": {"due": "1772366700000", "v": "1"}, "value": {"order_id": 1}}' | orderclose records check -`,
		Annotations: map[string]string{"jsonl": "yes"}, // allows -o jsonl
		Args:        cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 && topic != "" && last > 0:
				return c.checkTopic(cmd.Context(), topic, last)
			case len(args) == 0 || topic != "":
				return Exit(Usage, errors.New("give a file, or - to read stdin, or --topic with --last of 1 or more"))
			case args[0] == "-":
				return c.checkInput(c.env.Stdin, "stdin")
			}
			f, err := os.Open(args[0])
			if err != nil {
				return Exit(Usage, err)
			}
			defer f.Close()
			return c.checkInput(f, args[0])
		},
	}
	cmd.Flags().StringVar(&topic, "topic", "", "check records of this topic")
	cmd.Flags().Int64Var(&last, "last", 100, "how many offsets of each partition to read, up to the end")
	return cmd
}

// checkedRecord is the output of records check for one record.
type checkedRecord struct {
	Line    int       `json:"line,omitempty"` // of the input
	At      string    `json:"at,omitempty"`   // partition/offset in the topic
	OK      bool      `json:"ok"`
	ID      string    `json:"order_id,omitempty"`
	DueAt   time.Time `json:"due_at,omitzero"`
	Topic   string    `json:"topic,omitempty"` // where it belongs now, or did when it was appended
	Problem string    `json:"problem,omitempty"`
}

type recordCheck struct {
	*common
	all, wrong int
	kept       []checkedRecord // for -o json
}

func (c *recordCheck) print(k checkedRecord) error {
	c.all++
	if k.OK = k.Problem == ""; !k.OK {
		c.wrong++
	}
	switch c.output {
	case "json":
		c.kept = append(c.kept, k)
		return nil
	case "jsonl":
		return c.encode(k)
	}
	return c.common.print(k, func(w io.Writer) {
		at := cmp.Or(k.At, fmt.Sprintf("line %d", k.Line))
		if k.OK {
			fmt.Fprintf(w, "ok\t%s\t%s\tdue %s\t%s\n", at, oneLine(k.ID, 64), stamp(k.DueAt), k.Topic)
		} else {
			fmt.Fprintf(w, "FOUND\t%s\t%s\n", at, oneLine(k.Problem, 1000))
		}
	})
}

// end returns the error of a check of source.
func (c *recordCheck) end(source string) error {
	var err error
	if c.output == "json" {
		err = c.encode(map[string]any{"records": c.kept, "checked": c.all, "wrong": c.wrong})
	}
	return cmp.Or(err, exitIf(c.all == 0, Usage, "%s has no record", source),
		exitIf(c.wrong > 0, Findings, "%d of %s with a problem: correct the producer", c.wrong, plural(c.all, "record")))
}

// checkInput says of each record in r whether relay and closer can read it.
func (c *common) checkInput(r io.Reader, source string) error {
	cfg, err := c.load()
	if err != nil {
		return Exit(Usage, err)
	}
	check := recordCheck{common: c}
	for k, err := range each(r, func(raw json.RawMessage, line int) (k checkedRecord, err error) {
		m, problem, err := givenRecord(raw)
		k.Line = line
		if k.add(problem); problem == nil && err == nil {
			k.check(cfg, m, time.Now())
		}
		return k, err
	}) {
		if err != nil {
			return Exit(Usage, err)
		}
		if err := check.print(k); err != nil {
			return err
		}
	}
	return check.end(source)
}

// checkTopic says of the last records of each partition whether relay and closer can read them.
func (c *common) checkTopic(ctx context.Context, topic string, last int64) error {
	return with(c.openKafka(ctx))(func(s *session) error {
		spans, err := s.Kafka.Window(ctx, topic, kafka.LogStart, kafka.LogEnd)
		if err != nil {
			return err
		}
		n, err := s.Kafka.Partitions(ctx, topic)
		if err != nil {
			return err
		}
		check := recordCheck{common: c}
		for _, span := range spans {
			span.First = max(span.First, span.End-last)
			if err := s.Kafka.ReadSpan(ctx, topic, span, func(records []wire.RawRecord) error {
				return check.records(s.cfg, records, span.Partition, n)
			}); err != nil {
				return err
			}
		}
		return check.end(topic)
	})
}

// records checks records of one of n partitions.
func (c *recordCheck) records(cfg *config.Config, records []wire.RawRecord, partition, n int) error {
	for _, r := range records {
		k := checkedRecord{At: fmt.Sprintf("%d/%d", partition, r.Offset)}
		m, problem := r.Message()
		if k.add(problem); problem == nil {
			k.check(cfg, m, r.AppendedAt())
		}
		if want := kafka.PartitionOf(m.Key, n); len(m.Key) > 0 && want != partition {
			k.add(fmt.Errorf("the key belongs to partition %d: set the partitioner murmur2_random, unless partitions were added later", want))
		}
		if err := c.print(k); err != nil {
			return err
		}
	}
	return nil
}

// check decodes a record as the stages do at the time now.
func (k *checkedRecord) check(cfg *config.Config, m wire.Message, now time.Time) {
	r, problems := decodeAll(m)
	k.add(problems...)
	if len(problems) == 0 {
		k.ID, k.DueAt = r.Order.ID, r.Order.Due.UTC()
		k.Topic = cfg.Buckets.TopicAt(now, r.Release, cfg.Topics.Close)
		k.add(r.Order.Validate(now, cfg.MaxDelay), dueProblem(r))
	}
}

func (k *checkedRecord) add(problems ...error) {
	if err := errors.Join(problems...); err != nil {
		k.Problem = strings.TrimPrefix(k.Problem+"; "+strings.ReplaceAll(err.Error(), "\n", "; "), "; ")
	}
}

// decodeAll decodes a record as the stages do. They give up at the first problem. decodeAll corrects it in its copy of
// the record, if it can, so that one run names all problems.
func decodeAll(m wire.Message) (r wire.Record, problems []error) {
	id := orderID(m.Value)
	for {
		r, err := m.Decode()
		if err == nil {
			return r, problems
		}
		problems = append(problems, err)
		switch {
		case errors.Is(err, wire.ErrNoKey) && id != "", errors.Is(err, wire.ErrKeyMismatch) && id != "":
			m.Key = []byte(id)
		case errors.Is(err, wire.ErrBadVersion):
			m.Headers = append(slices.Clip(m.Headers), wire.Header{Key: wire.HeaderVersion, Value: []byte(wire.WireVersion)})
		case errors.Is(err, wire.ErrBadDue):
			m.Headers = append(slices.Clip(m.Headers), wire.Header{Key: wire.HeaderDue, Value: []byte("0")})
		default:
			return r, problems
		}
	}
}

// orderID returns the order id of a value; empty: it has none, or cannot be read, and decoding it says what is wrong.
func orderID(value []byte) string {
	var v struct {
		OrderID string `json:"order_id"`
	}
	_ = json.Unmarshal(value, &v)
	return v.OrderID
}

// dueProblem compares header and value. The stages accept any header: if it is too early, the record
// waits again; if it is too late, the order closes late.
func dueProblem(r wire.Record) error {
	due := orderclose.CeilMilli(r.Order.Due)
	if retried := r.Cause != "" || r.Attempt > 0 || r.NotDue > 0; retried || r.Release.Sub(due).Abs() <= time.Millisecond {
		return nil
	}
	return fmt.Errorf("header due is %d, which is %s, and due_at is %s: want %d", r.Release.UnixMilli(), stamp(r.Release), stamp(due), due.UnixMilli())
}

// givenRecord returns the record that raw describes: a value alone, which gets its key and headers as
// a row of outbox_schedules does, or an object with key, headers and value. problem says that the
// value cannot be read.
func givenRecord(raw json.RawMessage) (m wire.Message, problem, err error) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil || fields["key"] == nil && fields["headers"] == nil {
		m, _, problem = wire.OutboxRow{OrderID: orderID(raw), Payload: raw}.Schedule()
		return m, problem, nil
	}
	var isText bool
	if m.Key, isText = givenText(fields["key"]); !isText {
		return m, nil, fmt.Errorf("key is %s: want text, the bytes of the record's key", compactJSON(fields["key"]))
	}
	value := fields["value"]
	if value == nil {
		value = fields["payload"] // of kcat -J
	}
	m.Value, _ = givenText(value)
	m.Headers, err = givenHeaders(fields["headers"])
	return m, nil, err
}

// givenText returns the content of a text, nil for null or nothing, and any other JSON as it is.
func givenText(raw json.RawMessage) (content []byte, isText bool) {
	var text *string
	if raw != nil && json.Unmarshal(raw, &text) != nil {
		return raw, false
	}
	if text != nil {
		content = []byte(*text)
	}
	return content, true
}

// givenHeaders reads headers from an object, or from a list of names and values in turn, as kcat -J
// writes them.
func givenHeaders(raw json.RawMessage) (headers []wire.Header, err error) {
	var list []string // null becomes ""
	var object map[string]string
	switch {
	case raw == nil, json.Unmarshal(raw, &list) == nil && len(list)%2 == 0:
	case json.Unmarshal(raw, &object) == nil:
		list = nil
		for name, value := range object {
			list = append(list, name, value)
		}
	default:
		return nil, fmt.Errorf(`headers is %s: want an object of texts, such as {"due": "1772366700000", "v": "1"}`, compactJSON(raw))
	}
	for pair := range slices.Chunk(list, 2) {
		headers = append(headers, wire.Header{Key: pair[0], Value: []byte(pair[1])})
	}
	return headers, nil
}
