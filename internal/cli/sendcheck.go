package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/wire"
)

// checkedRecord is the output of send --check for one record.
type checkedRecord struct {
	Line    int       `json:"line"`
	OK      bool      `json:"ok"`
	ID      string    `json:"order_id,omitempty"`
	DueAt   time.Time `json:"due_at,omitzero"`
	Topic   string    `json:"topic,omitempty"` // where it belongs now
	Problem string    `json:"problem,omitempty"`
}

// sendCheck says of each record on stdin whether relay and closer can read it. It sends nothing.
func (c *common) sendCheck(in *orders) error {
	cfg, err := config.Load(c.config)
	if err != nil {
		return Exit(Usage, err)
	}
	all, wrong := 0, 0
	for ; ; all++ {
		raw, line, err := in.raw()
		if errors.Is(err, io.EOF) {
			break
		}
		k := checkedRecord{Line: line}
		if err == nil {
			k, err = checkRecord(cfg, line, raw, time.Now())
		}
		if err != nil {
			return Exit(Usage, fmt.Errorf("line %d: %w", line, err))
		}
		if !k.OK {
			wrong++
		}
		if err := c.print(k, func(w io.Writer) { printChecked(w, k) }); err != nil {
			return err
		}
	}
	return cmp.Or(exitIf(all == 0, Usage, "stdin has no record"),
		exitIf(wrong > 0, Findings, "%d of %s with a problem: correct the producer", wrong, plural(all, "record")))
}

func printChecked(w io.Writer, k checkedRecord) {
	if k.OK {
		fmt.Fprintf(w, "ok\tline %d\t%s\tdue %s\t%s\n", k.Line, oneLine(k.ID, 64), stamp(k.DueAt), k.Topic)
	} else {
		fmt.Fprintf(w, "FOUND\tline %d\t%s\n", k.Line, oneLine(k.Problem, 400))
	}
}

// checkRecord decodes a record as the stages do. The error says that raw is no input of this command.
func checkRecord(cfg *config.Config, line int, raw json.RawMessage, now time.Time) (checkedRecord, error) {
	k := checkedRecord{Line: line}
	m, problem, err := givenRecord(raw)
	if err != nil {
		return k, err
	}
	var r wire.Record
	if problem == nil {
		r, problem = m.Decode()
	}
	if problem == nil {
		k.ID, k.DueAt = r.Order.ID, r.Order.Due.UTC()
		k.Topic = cfg.Buckets.TopicAt(now, r.Release, cfg.Topics.Close)
		problem = errors.Join(r.Order.Validate(now, cfg.MaxDelay), dueProblem(r))
	}
	if k.OK = problem == nil; !k.OK {
		k.Problem = problem.Error()
	}
	return k, nil
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
		var id struct {
			OrderID string `json:"order_id"`
		}
		_ = json.Unmarshal(raw, &id) // Schedule says what is wrong
		m, _, problem = wire.OutboxRow{OrderID: id.OrderID, Payload: raw}.Schedule()
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
