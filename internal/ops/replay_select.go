package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/wire"
)

// ReplayDatabase is what a replay and its preview ask the database. Store of internal/store
// implements it.
type ReplayDatabase interface {
	// PreviewClose returns what closing each order by a path would return now, and changes nothing.
	// With an empty path no pause counts.
	PreviewClose(ctx context.Context, path orderclose.Path, reqs []orderclose.CloseRequest) ([]orderclose.Outcome, error)
	// Categories returns the category of each order that exists, by id.
	Categories(ctx context.Context, reqs []orderclose.CloseRequest) (map[string]string, error)
}

// ErrCategoryUnknown says that a replay selects categories, and neither a record nor the database
// has the category of the record's order.
var ErrCategoryUnknown = errors.New("the category of a record is not known")

// errNoDatabase is the reason of ErrCategoryUnknown without a database.
var errNoDatabase = errors.New("the database is not configured")

// replaySelector selects the records of a replay.
type replaySelector struct {
	topic      string
	orders     map[string]bool // whether a record of the order was seen; nil: all orders
	categories []string        // empty: all categories
	database   ReplayDatabase  // nil: not configured
}

func newReplaySelector(w ReplayWindow, database ReplayDatabase) *replaySelector {
	s := &replaySelector{topic: w.Topic, categories: w.Categories, database: database}
	if len(w.Orders) > 0 {
		s.orders = map[string]bool{}
		for _, id := range w.Orders {
			s.orders[id] = false
		}
	}
	return s
}

// missing returns the orders of which no record was seen, sorted.
func (s *replaySelector) missing() (ids []string) {
	for id, seen := range s.orders {
		if !seen {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// selection is the result of selectFrom.
type selection struct {
	records    []selectedRecord
	skipped    int // replays, and invalid records
	unselected int // records of other orders and categories
}

// selectedRecord is a record to send. It shares no memory with the fetch.
type selectedRecord struct {
	message  wire.Message
	request  orderclose.CloseRequest // as the closer makes it of the record
	category string                  // empty: the record has none
}

// selectFrom selects records of one partition. It skips replays: a replay in the close topic comes
// from a relay that does not know lanes. It also skips records that cannot be read, which became
// dead letters when the closer read them first. The error wraps ErrCategoryUnknown if the category
// of a record is needed and not known.
func (s *replaySelector) selectFrom(ctx context.Context, partition int, records []wire.RawRecord) (selection, error) {
	var found selection
	for _, raw := range records {
		if s.orders != nil {
			if _, wanted := s.orders[string(raw.Key())]; !wanted {
				found.unselected++
				continue
			}
			s.orders[string(raw.Key())] = true
		}
		r, valid := readForReplay(raw)
		switch {
		case !valid:
			found.skipped++
		case len(s.categories) > 0 && r.category != "" && !slices.Contains(s.categories, r.category):
			found.unselected++
		default:
			found.records = append(found.records, r)
		}
	}
	return found, s.resolve(ctx, partition, &found)
}

// readForReplay decodes a record. It returns false for a record that a replay skips.
func readForReplay(raw wire.RawRecord) (selectedRecord, bool) {
	_, replay, err := raw.Route()
	if err != nil || replay {
		return selectedRecord{}, false
	}
	m, err := raw.Message()
	if err != nil {
		return selectedRecord{}, false
	}
	r, err := m.DecodeWithoutAttributes()
	o := r.Order
	return selectedRecord{message: m, category: o.Category, request: orderclose.CloseRequest{OrderID: o.ID, CreatedAt: o.CreatedAt, Due: o.Due}}, err == nil
}

// resolve asks the database for the categories of the orders whose records have none, and removes
// the records of other categories. An order that the database does not have is in no category.
func (s *replaySelector) resolve(ctx context.Context, partition int, found *selection) error {
	first := slices.IndexFunc(found.records, func(r selectedRecord) bool { return r.category == "" })
	if first < 0 || len(s.categories) == 0 {
		return nil
	}
	var asked []orderclose.CloseRequest
	for _, r := range found.records[first:] {
		if r.category == "" {
			asked = append(asked, r.request)
		}
	}
	known, err := map[string]string(nil), errNoDatabase
	if s.database != nil {
		known, err = s.database.Categories(ctx, asked)
	}
	if errors.Is(err, errNoDatabase) || errors.Is(err, store.ErrNoCategory) {
		r := found.records[first]
		return fmt.Errorf("%w: %s/%d has a record without a category at offset %d, of order %q, and %w",
			ErrCategoryUnknown, s.topic, partition, r.message.Offset, r.request.OrderID, err)
	}
	if err != nil {
		return err
	}
	before := len(found.records)
	found.records = slices.DeleteFunc(found.records, func(r selectedRecord) bool {
		return r.category == "" && !slices.Contains(s.categories, known[r.request.OrderID])
	})
	found.unselected += before - len(found.records)
	return nil
}
