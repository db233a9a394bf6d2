package shadow

import (
	"cmp"
	"hash/maphash"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
)

// compactVerdicts holds one verdict of each order, in 24 bytes of each that was added: call add for
// all, then seal, then of. An order is known by 8 bytes of its id: of is wrong for at least one of a
// million orders with a probability of one in 18 million.
type compactVerdicts struct {
	seed maphash.Seed
	all  []compactVerdict
}

// compactVerdict is a verdict without the id of its order.
type compactVerdict struct {
	order   uint64 // hash of the id
	at      int64  // unix milliseconds
	number  uint32 // in the order of add
	verdict uint8  // index in orderclose.Verdicts, plus 1; 0: unknown
}

func newVerdicts() *compactVerdicts { return &compactVerdicts{seed: maphash.MakeSeed()} }

func (s *compactVerdicts) add(v Verdict) {
	s.all = append(s.all, compactVerdict{
		order: maphash.String(s.seed, v.OrderID), at: v.At.UnixMilli(), number: uint32(len(s.all)),
		verdict: uint8(slices.Index(orderclose.Verdicts(), v.Verdict) + 1),
	})
}

// seal chooses the verdict of each order that has several. A close happens once, so the first
// verdict that the order is closed, or was closed or paid before, counts: later records of the order
// would find nothing to do. Without one, the last verdict counts.
func (s *compactVerdicts) seal() {
	slices.SortFunc(s.all, func(a, b compactVerdict) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.number, b.number))
	})
	n := 0
	for _, v := range s.all {
		switch {
		case n == 0 || s.all[n-1].order != v.order:
			s.all[n] = v
			n++
		case !s.all[n-1].final(): //mutant:shadow-verdict-replaced
			s.all[n-1] = v
		}
	}
	s.all = s.all[:n]
}

// of returns the verdict on an order; the zero value: there is none.
func (s *compactVerdicts) of(orderID string) decided {
	i, found := slices.BinarySearchFunc(s.all, maphash.String(s.seed, orderID), func(v compactVerdict, order uint64) int { return cmp.Compare(v.order, order) })
	if !found {
		return decided{}
	}
	return decided{s.all[i].name(), time.UnixMilli(s.all[i].at).UTC()}
}

func (v compactVerdict) name() orderclose.Verdict {
	if v.verdict == 0 {
		return "unknown"
	}
	return orderclose.Verdicts()[v.verdict-1]
}

// final reports whether no later record of the order would have been closed.
func (v compactVerdict) final() bool {
	return slices.Contains([]orderclose.Verdict{orderclose.Closed, orderclose.AlreadyClosed, orderclose.AlreadyPaid}, v.name())
}
