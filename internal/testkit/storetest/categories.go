package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

var categoryPromises = []promise[shop]{
	{name: "CategoriesAreThoseOfTheOrdersThatExist", test: categoriesOfOrders},
}

func categoriesOfOrders(t *testing.T, s *shop) {
	s.migrated()
	now := s.now()
	s.order("a", time.Hour)
	s.bulk([]orderclose.Order{{ID: "b", CreatedAt: now, Due: now}, {ID: "c", Category: "gift", CreatedAt: now, Due: now}})
	found := must.Get(s.Categories(t.Context(), requests("a", "nobody's", "b", "A", "c", "")))(t)
	want(t, "categories", found, map[string]string{"a": "book", "b": "", "c": "gift"})
}

func categoriesMapped(t *testing.T, s *mapped) {
	s.begin()
	without, with, gone := s.an(1, time.Hour), s.an(2, time.Hour), s.an(3, time.Hour)
	without.Category = ""
	s.put(s.Mapping.Status.From[0], without, with)
	found, err := s.Categories(t.Context(), ask(gone, with, without))
	if s.Mapping.Category == "" {
		expect.That(t, errors.Is(err, store.ErrNoCategory), "%v, %v; want an error: no category is mapped", found, err)
		return
	}
	s.must(err)
	want(t, "categories", found, map[string]string{with.ID: with.Category, without.ID: ""})
}
