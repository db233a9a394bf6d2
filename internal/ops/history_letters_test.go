package ops

import (
	"context"
	"fmt"
	"testing"

	"github.com/orderclose/orderclose/internal/wire"
)

// countedLog counts the offsets that were read.
type countedLog struct {
	longLog
	read map[int64]bool
}

func (l countedLog) Read(_ context.Context, at wire.Position) (wire.Fetched, error) {
	l.read[at.Offset] = true
	return wire.Fetched{Records: l.records[at.Offset : at.Offset+1], Next: at.Offset + 1}, nil
}

// TestSearch_ReadsOnlyTheDeadLettersThatTheIndexKnows, and what was appended since.
func TestSearch_ReadsOnlyTheDeadLettersThatTheIndexKnows(t *testing.T) {
	for name, c := range map[string]struct {
		next  int64
		known bool
		read  int
	}{
		"the index is behind":      {990, true, 12},
		"the index has all":        {1000, true, 2},
		"the index is of an older": {1001, true, 1000},
		"the index is incomplete":  {0, false, 1000},
	} {
		log := countedLog{read: map[int64]bool{}}
		for i := range int64(1000) {
			m := wire.DeadLetter(wire.Message{Topic: "order-close", Key: fmt.Append(nil, "o", i%500)}, "closer", "failed", "")
			if i == 600 {
				m = wire.Resolution{Offset: 100, How: wire.Redriven}.Encode([]byte("o100"))
			}
			m.Offset, m.Appended = i, after(0)
			log.records = append(log.records, m.Raw())
		}
		index := func(partition int, order string) ([]int64, int64, bool) {
			if partition != 0 || order != "o100" {
				t.Errorf("asked about %s in partition %d", order, partition)
			}
			return []int64{100, 600}, c.next, c.known
		}
		p := SearchTopics(t.Context(), log, []HistoryTopic{{Topic: "dead", Kind: KindDeadLetters}}, "o100", SearchLimit{Records: 10_000, Letters: index})[0]
		if p.Problem != "" || len(p.Records) != 2 || p.Records[0].Dead == nil || p.Records[1].Settles == nil || p.Skipped != 0 {
			t.Errorf("%s: %+v", name, p)
		}
		if len(log.read) != c.read || p.Looked != int64(c.read) {
			t.Errorf("%s: read %d records, counted %d; want %d", name, len(log.read), p.Looked, c.read)
		}
	}
}
