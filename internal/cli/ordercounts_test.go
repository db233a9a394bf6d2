package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

func TestDoubt_ImprobableDueTimesAreFound(t *testing.T) {
	in := func(d time.Duration) time.Time { return at.Add(d) }
	for _, c := range []struct {
		counts store.OrderCounts
		accept string
		want   string // a part of the doubt; empty: none
	}{
		{store.OrderCounts{At: at}, "", ""},
		{store.OrderCounts{At: at, From: 5, Overdue: 2, Waiting: 3, Farthest: in(30 * time.Minute)}, "", ""},
		{store.OrderCounts{At: at, From: 3, Waiting: 3, Farthest: in(31 * time.Minute)}, "", ""},
		{store.OrderCounts{At: at, From: 3, Waiting: 3, Farthest: in(8 * time.Hour)}, "", "due in 8h0m0s, but the longest delay in topics.yaml is 30m"},
		{store.OrderCounts{At: at, From: 3, Waiting: 3, Farthest: in(8 * time.Hour)}, mapping.FarDue, ""},
		{store.OrderCounts{At: at, From: 341, Overdue: 341}, "", "341 unpaid orders are overdue, and none is due in the future"},
		{store.OrderCounts{At: at, From: 341, Overdue: 341}, mapping.NothingDueLater, ""},
		{store.OrderCounts{At: at, From: 7, Excluded: 7}, "", "excludes all 7 unpaid orders"},
	} {
		cfg := config.Default()
		cfg.Accept = []string{c.accept}
		what, fix := doubt(c.counts, cfg)
		if (what == "") != (c.want == "") || !strings.Contains(what, c.want) || (fix == "") != (what == "") {
			t.Errorf("%+v: %q; %q", c.counts, what, fix)
		}
	}
}

func TestOrderCounts_Table(t *testing.T) {
	c := &orderCounts{
		OrderCounts: store.OrderCounts{At: at, From: 420, To: store.CountLimit, Overdue: 12, Waiting: 388, Excluded: 20, Farthest: at.Add(119 * time.Minute)},
		status:      mapping.Status{From: mapping.IntValue(101), To: mapping.IntValue(103)}, longest: 30 * time.Minute, Doubt: "the longest delay is 30m",
		Evidence: store.Evidence{Unnamed: []string{"104"}, UnnamedAs: store.AuditPaid, PaidColumn: "pay_time", FromSample: store.PaidSample{Orders: 100}, ToSample: store.PaidSample{Orders: 100, Paid: 2}},
	}
	golden(t, "compensate_counts", c.print)
}
