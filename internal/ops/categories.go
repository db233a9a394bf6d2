package ops

import (
	"context"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
)

// maxCategoryPages is how many pages of unpaid orders are searched for a category that topics.yaml does
// not name.
const maxCategoryPages = 50

// NoSuchCategory says what is wrong with an unknown category.
const NoSuchCategory = "neither topics.yaml (delays.categories) nor an unpaid order has this category"

// UnknownCategory returns a category that neither topics.yaml nor an unpaid order has, because it is
// probably a typo; empty: there is none. If there are so many unpaid orders that the search ends before, or the
// database does not answer, there is none: the action itself reports the failure.
func (p Pipeline) UnknownCategory(ctx context.Context, categories ...string) string {
	unknown := slices.DeleteFunc(slices.Clone(categories), func(category string) bool {
		_, listed := p.Config.Delays.ByCategory[category]
		return category == "" || listed
	})
	if p.Store == nil || len(unknown) == 0 {
		return ""
	}
	if _, err := p.Store.Categories(ctx, nil); err != nil { // orders have no category
		return ""
	}
	after, end := orderclose.Order{}, time.Now().Add(p.Config.MaxDelay).Add(24*time.Hour)
	for range maxCategoryPages {
		page, err := p.Store.DueBetween(ctx, time.UnixMilli(0), end, after, config.MaxBatch)
		if err != nil {
			return ""
		}
		if len(page) == 0 {
			return unknown[0]
		}
		after = page[len(page)-1]
		unknown = slices.DeleteFunc(unknown, func(category string) bool {
			return slices.ContainsFunc(page, func(o orderclose.Order) bool { return o.Category == category })
		})
		if len(unknown) == 0 {
			return ""
		}
	}
	return ""
}
