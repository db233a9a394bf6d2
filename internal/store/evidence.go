package store

import (
	"cmp"
	"context"
	"slices"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

// Evidence has up to sampled orders of a status that orders.where does not exclude, of the lookedAt that it looks at.
const sampled, lookedAt = 100, 10_000

// Evidence is what the shop's orders say about the statuses of the mapping.
type Evidence struct {
	// Unnamed has the statuses that orders have and the mapping does not name. They count as UnnamedAs.
	Unnamed   []string   `json:"unnamed,omitempty"`
	UnnamedAs AuditState `json:"unnamed_as,omitempty"`
	// PaidColumn is the column that by its name holds when an order was paid; empty: there is none. FromSample and ToSample
	// are orders with the status Status.From and with Status.To, and how many of them hold such a time.
	PaidColumn string     `json:"paid_column,omitempty"`
	FromSample PaidSample `json:"from_sample"`
	ToSample   PaidSample `json:"to_sample"`
}

// PaidSample is a sample of orders of one status.
type PaidSample struct {
	Orders int64 `json:"orders"`
	Paid   int64 `json:"paid"` // orders with a time of payment
}

// Mostly reports whether most orders of the sample are paid.
func (p PaidSample) Mostly() bool { return 2*p.Paid > p.Orders }

// Evidence reads what orders say about the statuses of the mapping: one entry of the index for each status of each
// table, and up to 100 orders with each of the two statuses of a close in the newest table, without those that Mapping.Where excludes.
func (s *Store) Evidence(ctx context.Context) (e Evidence, err error) {
	in, err := s.allTables(ctx)
	for _, t := range in {
		values, readErr := s.unlisted(ctx, t)
		for _, v := range values {
			if !slices.Contains(e.Unnamed, v.String()) {
				e.Unnamed = append(e.Unnamed, v.String())
			}
		}
		err = cmp.Or(err, readErr)
	}
	if e.UnnamedAs = s.unlistedState(); err == nil && len(in) > 0 {
		err = s.sample(ctx, in[0], &e)
	}
	return e, s.failed(ctx, err, "read a sample of the orders")
}

func (s *Store) sample(ctx context.Context, t *table, e *Evidence) error {
	schema, err := s.describe(ctx, t.name)
	holds := ""
	if e.PaidColumn, holds = schema[t.name].PaidTime(); err != nil || e.PaidColumn == "" {
		return err
	}
	where := cmp.Or(s.q.where.sql, "TRUE")
	query := "SELECT COUNT(*), COUNT(CASE WHEN oc_holds = 1 THEN 1 END) FROM (SELECT oc_holds FROM (SELECT" +
		" CASE WHEN " + holds + " THEN 1 ELSE 0 END AS oc_holds, CASE WHEN " + where + " THEN 1 ELSE 0 END AS oc_in" +
		" FROM " + mapping.Quote(t.name) + s.q.d.hint(s.q.m.DueIndex) + " WHERE " + mapping.Quote(s.q.m.Status.Column) + " = ? LIMIT ?) AS oc_read" +
		" WHERE oc_in = 1 LIMIT ?) AS oc_all"
	for v, to := range map[mapping.Value]*PaidSample{s.q.m.Status.From: &e.FromSample, s.q.m.Status.To: &e.ToSample} {
		args := append(slices.Clone(s.q.where.args), v.Arg(), lookedAt, sampled)
		if err := s.gorm.WithContext(ctx).Raw(query, args...).Row().Scan(&to.Orders, &to.Paid); err != nil {
			return err
		}
	}
	return nil
}
