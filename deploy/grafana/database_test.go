package main

import (
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"
)

// database holds series in memory, by their labels. Prometheus' own database would need hundreds
// of packages, for every cloud.
type database map[string]*series

// series is one series. Its chunk takes 65,535 samples.
type series struct {
	storage.SeriesEntry
	chunk    *chunkenc.XORChunk
	appender chunkenc.Appender
}

// add adds a sample to a series. The times of a series must rise.
func (d database) add(l labels.Labels, at int64, value float64) (err error) {
	s := d[l.String()]
	if s == nil {
		s = &series{chunk: chunkenc.NewXORChunk()}
		s.SeriesEntry = storage.SeriesEntry{Lset: l, SampleIteratorFn: s.chunk.Iterator}
		if s.appender, err = s.chunk.Appender(); err != nil {
			return err
		}
		d[l.String()] = s
	}
	s.appender.Append(0, at, value)
	return nil
}

// find returns the series that match, sorted by their labels.
func (d database) find(matchers []*labels.Matcher) (found []storage.Series) {
	for _, s := range d {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Lset.Get(m.Name)) }) {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return found
}

// queryable returns the database as the engine reads it.
func (d database) queryable() storage.Queryable {
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			return &seriesSet{found: d.find(matchers), at: -1}
		},
	}}
}

// seriesSet implements storage.SeriesSet.
type seriesSet struct {
	found []storage.Series
	at    int
}

func (s *seriesSet) Next() bool                        { s.at++; return s.at < len(s.found) }
func (s *seriesSet) At() storage.Series                { return s.found[s.at] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }
