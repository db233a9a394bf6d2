package console

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/ops/deadletters"
)

// letterTimeout bounds reading the dead letters of a page from Kafka.
const letterTimeout = 5 * time.Second

// lettersData is what the page of dead letters shows.
type lettersData struct {
	State   deadletters.CatalogState
	Chart   chart
	Filter  url.Values // cause, topic, stage, since, all; and order, which stands in no URL
	Listing deadletters.Listing
	Pending int   // that fit the filter, on all pages
	Problem error // of the filter, or of reading the page
}

// Link returns the query of the same list from another place on, or with another filter.
func (d lettersData) Link(name, value string) string {
	q := maps.Clone(d.Filter)
	for _, left := range []string{"order", "after", name} {
		q.Del(left)
	}
	if value != "" {
		q.Set(name, value)
	}
	return "?" + q.Encode()
}

// FilterNames returns the fields of the filter that a plan takes over. The list has all resolved dead
// letters too if all is set; a plan is about the pending ones.
func (d lettersData) FilterNames() (names []string) {
	for _, name := range []string{"cause", "topic", "stage", "since", "order"} {
		if d.Filter.Get(name) != "" {
			names = append(names, name)
		}
	}
	return names
}

// Plain reports whether the fields of the filter can be the fields of a plan.
func (d lettersData) Plain() bool {
	return !slices.ContainsFunc(d.FilterNames(), func(name string) bool { return !(page{}).Plain(d.Filter.Get(name)) })
}

// letterQuery returns what the fields select.
func letterQuery(fields url.Values) (q deadletters.Query, err error) {
	q.All = fields.Get("all") == "1"
	q.Cause, q.Stage, q.Source, q.Order = fields.Get("cause"), fields.Get("stage"), fields.Get("topic"), strings.TrimSpace(fields.Get("order"))
	if q.Since, err = moment("since", fields.Get("since")); err != nil {
		return q, err
	}
	if after := fields.Get("after"); after != "" {
		at, err := deadletters.ParsePartitionOffset(after)
		if err != nil {
			return q, err
		}
		q.After = &at
	}
	return q, nil
}

func (c *Console) serveLetters(w http.ResponseWriter, r *http.Request) {
	fields := r.URL.Query()
	if r.Method == http.MethodPost {
		fields = r.PostForm
	}
	fields = inUTC(fields, zoneOf(r))
	d := lettersData{Filter: fields}
	if c.letters != nil {
		d.State = c.letters.State()
		d.Chart = hoursChart(d.State)
	}
	if q, err := letterQuery(fields); err == nil && c.letters != nil {
		d.Pending = c.letters.CountPending(q)
	}
	var status int
	if d.Listing, status, d.Problem = c.listLetters(r, fields); status != http.StatusBadRequest {
		status = http.StatusOK // the page shows the problem
	}
	c.render(w, r, status, c.newPage(r, "dead-letters", d))
}

// listLetters returns the dead letters that the fields select, and the status of the answer.
func (c *Console) listLetters(r *http.Request, fields url.Values) (found deadletters.Listing, status int, err error) {
	if c.letters == nil {
		return found, http.StatusServiceUnavailable, ops.ErrNoKafka
	}
	q, err := letterQuery(fields)
	if err != nil {
		return found, http.StatusBadRequest, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), letterTimeout)
	defer cancel()
	if found, err = c.letters.List(ctx, q); err != nil {
		return found, http.StatusServiceUnavailable, err
	}
	return found, http.StatusOK, nil
}

// letter returns the dead letter of a request; nil if there is none.
func (c *Console) letter(r *http.Request) (*deadletters.Whole, error) {
	at, err := deadletters.ParsePartitionOffset(r.PathValue("partition") + "/" + r.PathValue("offset"))
	if err != nil {
		return nil, nil
	}
	if c.letters == nil {
		return nil, ops.ErrNoKafka
	}
	ctx, cancel := context.WithTimeout(r.Context(), letterTimeout)
	defer cancel()
	found, err := c.letters.Letter(ctx, at)
	if err != nil || found == nil {
		return nil, err
	}
	return new(found.Whole()), nil
}

func (c *Console) serveLetter(w http.ResponseWriter, r *http.Request) {
	l, err := c.letter(r)
	switch {
	case err != nil:
		c.renderProblem(w, r, http.StatusServiceUnavailable, "error.kafka", err.Error())
	case l == nil:
		c.renderProblem(w, r, http.StatusNotFound, "error.no_letter", "")
	default:
		c.render(w, r, http.StatusOK, c.newPage(r, "dead-letter", *l))
	}
}

// hoursChart returns the pending dead letters of the last week by the time they were written, in steps
// of six hours.
func hoursChart(s deadletters.CatalogState) chart {
	const perBar = 6
	c := chart{Key: "letters.chart", Series: []string{"dead letters"}, Layout: "01-02"}
	for hours := range slices.Chunk(s.ByHour, perBar) {
		b := c.add(hours[0].From, hours[len(hours)-1].From.Add(time.Hour), func(int) (n int64) {
			for _, h := range hours {
				n += int64(h.Pending)
			}
			return n
		})
		if len(c.Bars)%4 == 1 { // a day has four
			b.Label = b.From
		}
	}
	return c.placed()
}

// lettersAnswer is the body of the list of dead letters.
type lettersAnswer struct {
	State deadletters.CatalogState `json:"state"`
	deadletters.Listing
}

func (c *Console) lettersJSON(r *http.Request, fields url.Values) (int, any, error) {
	found, status, err := c.listLetters(r, fields)
	if err != nil {
		return status, nil, err
	}
	return status, lettersAnswer{c.letters.State(), found}, nil
}

func (c *Console) serveLetterJSON(r *http.Request) (int, any, error) {
	l, err := c.letter(r)
	switch {
	case err != nil:
		return http.StatusServiceUnavailable, nil, err
	case l == nil:
		return http.StatusNotFound, nil, errors.New("there is no such dead letter, or retention has deleted it")
	}
	return http.StatusOK, *l, nil
}
