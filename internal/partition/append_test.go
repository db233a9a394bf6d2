package partition

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/orderclose/orderclose/internal/wire"
)

func offsets(records []wire.RawRecord) []int64 {
	all := []int64{}
	for _, r := range records {
		all = append(all, r.Offset)
	}
	return all
}

// Whatever Kafka refuses, and whenever it fails, each record is acked, refused or left. The
// records that are left are the last ones, and nothing is requested after the failure.
func TestAppendPart_AccountsForEachRecordInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 64).Draw(t, "records")
		bad := map[int64]bool{}
		all := records(slices.Repeat([]string{"key"}, n)...)
		for i := range all {
			bad[int64(i)] = rapid.IntRange(0, 9).Draw(t, "fate") == 0
		}
		failAt := rapid.IntRange(1, 100).Draw(t, "failing request")
		requests := 0
		var handled []int64 // acked or refused
		left, err := AppendPart(all, func(part []wire.RawRecord) error {
			requests++
			switch {
			case requests > failAt:
				t.Fatalf("request %d, after request %d failed", requests, failAt)
			case requests == failAt:
				return errDown
			case slices.ContainsFunc(part, func(r wire.RawRecord) bool { return bad[r.Offset] }):
				return wire.ErrRefused
			}
			handled = append(handled, offsets(part)...)
			return nil
		}, func(r wire.RawRecord, err error) {
			if !bad[r.Offset] || !errors.Is(err, wire.ErrRefused) {
				t.Fatalf("record %d was refused: %v", r.Offset, err)
			}
			handled = append(handled, r.Offset)
		})
		if (err == nil) != (requests < failAt) || err != nil && !errors.Is(err, errDown) || err == nil && len(left) > 0 {
			t.Fatalf("after %d requests %d are left: %v", requests, len(left), err)
		}
		if diff := cmp.Diff(offsets(all), append(append([]int64{}, handled...), offsets(left)...)); diff != "" {
			t.Fatalf("handled and left (-want +got):\n%s", diff)
		}
	})
}

// The dead letters of the other partitions are appended, whichever partition is first.
func TestAppendDeadLetters_APartitionThatFailsDelaysNoOther(t *testing.T) {
	group := func(context.Context, string, []wire.RawRecord) (map[int][]wire.RawRecord, error) {
		all := records("a", "b", "c")
		return map[int][]wire.RawRecord{0: all[:1], 1: all[1:2], 2: all[2:]}, nil
	}
	for range 20 {
		acked := 0
		left, err := AppendDeadLetters(t.Context(), "dead", nil, group, func(_ context.Context, _ string, p int, part []wire.RawRecord) (time.Time, error) {
			if p == 1 {
				return time.Time{}, errDown
			}
			acked += len(part)
			return time.Time{}, nil
		})
		if acked != 2 || len(left) != 1 || left[0].Offset != 1 || !errors.Is(err, errDown) {
			t.Fatalf("%d acked, left %v, %v", acked, left, err)
		}
	}
}
