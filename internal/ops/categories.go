package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
)

// maxCategoryPages is how many pages of unpaid orders are searched for a category that topics.yaml does
// not name.
const maxCategoryPages = 50

// ErrNoSuchCategory says that nobody has a category, because it is probably a typo.
var ErrNoSuchCategory = errors.New("neither topics.yaml (delays.categories) nor an unpaid order has this category")

// CheckCategories returns an error that wraps ErrNoSuchCategory, and names one of the categories, if neither topics.yaml nor an
// unpaid order has that one. If there are so many unpaid orders that the search ends before, or the database does not answer, it
// returns nil: the action itself reports the failure.
func (p Pipeline) CheckCategories(ctx context.Context, categories ...string) error {
	unknown := slices.DeleteFunc(slices.Clone(categories), func(category string) bool {
		_, listed := p.Config.Delays.ByCategory[category]
		return category == "" || listed
	})
	if p.Store == nil || len(unknown) == 0 {
		return nil
	}
	if _, err := p.Store.Categories(ctx, nil); err != nil { // orders have no category
		return nil
	}
	after, end := orderclose.Order{}, time.Now().Add(p.Config.MaxDelay).Add(24*time.Hour)
	for range maxCategoryPages {
		page, err := p.Store.DueBetween(ctx, time.UnixMilli(0), end, after, config.MaxBatch)
		if err != nil {
			return nil
		}
		if len(page) == 0 {
			return fmt.Errorf("category %s: %w", OneLine(unknown[0], 100), ErrNoSuchCategory)
		}
		after = page[len(page)-1]
		unknown = slices.DeleteFunc(unknown, func(category string) bool {
			return slices.ContainsFunc(page, func(o orderclose.Order) bool { return o.Category == category })
		})
		if len(unknown) == 0 {
			return nil
		}
	}
	return nil
}
