package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
)

// maxCategoryPages is how many pages of unpaid orders are searched for a category that topics.yaml does
// not name.
const maxCategoryPages = 50

// checkCategories refuses a category that neither topics.yaml nor an unpaid order has, because it is
// probably a typo. If there are so many unpaid orders that the search ends before, or the database does
// not answer, the category is accepted: the command itself reports the failure.
func (c *common) checkCategories(ctx context.Context, s *session, categories ...string) error {
	unknown := map[string]bool{}
	for _, category := range categories {
		if _, listed := s.cfg.Delays.ByCategory[category]; category != "" && !listed {
			unknown[category] = true
		}
	}
	if s.Store == nil || len(unknown) == 0 {
		return nil
	}
	if _, err := s.Store.Categories(ctx, nil); err != nil { // orders have no category
		return nil
	}
	after, end := orderclose.Order{}, time.Now().Add(s.cfg.MaxDelay).Add(24*time.Hour)
	for range maxCategoryPages {
		if len(unknown) == 0 {
			return nil
		}
		page, err := s.Store.DueBetween(ctx, time.UnixMilli(0), end, after, s.cfg.Compensator.PageSize)
		if err != nil {
			return nil
		}
		for _, o := range page {
			delete(unknown, o.Category)
			after = o
		}
		if len(page) == 0 {
			for category := range unknown {
				return Exit(NotFound, fmt.Errorf("--category %s: neither topics.yaml (delays.categories) nor an unpaid order has this category", oneLine(category, 100)))
			}
		}
	}
	return nil
}
