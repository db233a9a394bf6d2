package ops

import (
	"context"
	"hash/maphash"
	"slices"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/wire"
)

// ReplayPreview says what a replay would change.
type ReplayPreview struct {
	Records    int64 `json:"records"` // that would be sent
	Orders     int64 `json:"orders"`  // of these records
	Skipped    int64 `json:"passed"`  // replays, and invalid records
	Unselected int64 `json:"unselected"`
	// Missing are those of the selected orders that have no record in the window. It is empty if an
	// earlier run has handled a part of the window.
	Missing []string `json:"missing,omitempty"`
	// Verdicts counts the orders by what closing them would return now. It is nil if no database
	// is configured.
	Verdicts map[orderclose.Verdict]int64 `json:"verdicts,omitempty"`
	// NotRead is the error of the database. Verdicts then lacks some orders.
	NotRead string `json:"not_read,omitempty"`
}

// PreviewReplay reads the records of the plan, asks the database, if it is not nil, about their
// orders, and changes nothing. progress, if not nil, is called with the number of records read so
// far. It keeps 8 bytes of each order in memory, and some more for the set.
func PreviewReplay(ctx context.Context, log Log, p ReplayPlan, database ReplayDatabase, progress func(done int64)) (*ReplayPreview, error) {
	v := &previewing{
		selector: newReplaySelector(p.ReplayWindow, database), database: database,
		seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}, r: &ReplayPreview{},
	}
	if database != nil {
		v.r.Verdicts = map[orderclose.Verdict]int64{}
	}
	read := int64(0)
	for _, span := range p.Spans {
		err := log.ReadSpan(ctx, p.Topic, span, func(records []wire.RawRecord) error {
			for chunk := range slices.Chunk(records, replayChunk) {
				if err := v.add(ctx, span.Partition, chunk); err != nil {
					return err
				}
			}
			if read += int64(len(records)); progress != nil {
				progress(read)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	v.ask(ctx)
	if p.Handled == 0 {
		v.r.Missing = v.selector.missing()
	}
	return v.r, nil
}

// previewing is one run of PreviewReplay.
type previewing struct {
	selector *replaySelector
	database ReplayDatabase
	seed     maphash.Seed
	seen     map[uint64]struct{}       // hashes of the orders' ids
	pending  []orderclose.CloseRequest // orders that the database was not asked about yet
	r        *ReplayPreview
}

func (v *previewing) add(ctx context.Context, partition int, chunk []wire.RawRecord) error {
	found, err := v.selector.selectFrom(ctx, partition, chunk)
	if err != nil {
		return err
	}
	v.r.Records += int64(len(found.records))
	v.r.Skipped += int64(found.skipped)
	v.r.Unselected += int64(found.unselected)
	for _, r := range found.records {
		hash := maphash.String(v.seed, r.request.OrderID)
		if _, seen := v.seen[hash]; seen {
			continue
		}
		v.seen[hash] = struct{}{}
		v.r.Orders++
		if v.pending = append(v.pending, r.request); len(v.pending) >= replayChunk {
			v.ask(ctx)
		}
	}
	return nil
}

// ask asks the database about the pending orders. After an error it asks no more: the plan is
// shown without the answers.
func (v *previewing) ask(ctx context.Context) {
	if v.database != nil && v.r.NotRead == "" && len(v.pending) > 0 {
		outcomes, err := v.database.PreviewClose(ctx, "", v.pending)
		if err != nil {
			v.r.NotRead = err.Error()
		}
		for _, o := range outcomes {
			v.r.Verdicts[o.Verdict]++
		}
	}
	v.pending = v.pending[:0]
}
