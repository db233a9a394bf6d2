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

	"github.com/orderclose/orderclose/internal/deadletters"
	"github.com/orderclose/orderclose/internal/health"
)

// letterTimeout bounds reading the dead letters of a page from Kafka.
const letterTimeout = 5 * time.Second

const (
	// lettersInterval is the interval between looks at the topic and at the orders.
	lettersInterval = 5 * time.Second
	lettersPerPage  = 50
	maxTopics       = 20 // that the filter offers
)

// lettersData is what the page of dead letters shows.
type lettersData struct {
	State   deadletters.State
	Filter  url.Values // cause, topic, stage, since; and order, which stands in no URL
	Letters []deadletters.Letter
	Topics  []string              // of the records of all open dead letters
	Next    *deadletters.Position // if there are more: the last one of the page
	Problem error                 // of the filter, or health.ErrNoKafka
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

// letterFilter returns what the fields select, and behind which dead letter the page begins; nil: with the newest.
func letterFilter(fields url.Values) (f deadletters.Filter, after *deadletters.Position, err error) {
	f = deadletters.Filter{Cause: fields.Get("cause"), Stage: fields.Get("stage"), Source: fields.Get("topic"), Order: strings.TrimSpace(fields.Get("order"))}
	if f.Since, err = moment("since", fields.Get("since")); err != nil || fields.Get("after") == "" {
		return f, nil, err
	}
	at, err := deadletters.ParsePartitionOffset(fields.Get("after"))
	return f, &at, err
}

func (c *Console) serveLetters(w http.ResponseWriter, r *http.Request) {
	fields := r.URL.Query()
	if r.Method == http.MethodPost {
		fields = r.PostForm
	}
	d := c.listLetters(inUTC(fields, zoneOf(r)))
	status := http.StatusOK // the page shows the problem
	if d.Problem != nil && !errors.Is(d.Problem, health.ErrNoKafka) {
		status = http.StatusBadRequest
	}
	c.render(w, r, status, c.newPage(r, "dead-letters", d))
}

// listLetters returns the page of open dead letters that the fields select.
func (c *Console) listLetters(fields url.Values) lettersData {
	d := lettersData{Filter: fields, Problem: health.ErrNoKafka}
	if c.letters == nil {
		return d
	}
	d.State = c.letters.State()
	all := c.letters.Letters(deadletters.Filter{})
	for _, l := range all {
		if len(d.Topics) < maxTopics && !slices.Contains(d.Topics, l.Source.Topic) {
			d.Topics = append(d.Topics, l.Source.Topic)
		}
	}
	f, after, err := letterFilter(fields)
	if d.Problem = err; err != nil {
		return d
	}
	d.Letters = slices.DeleteFunc(all, func(l deadletters.Letter) bool { return !f.Match(&l) })
	if after != nil { // one that has ended since is not found: the page begins with the newest
		d.Letters = d.Letters[1+slices.IndexFunc(d.Letters, func(l deadletters.Letter) bool { return l.At == *after }):]
	}
	if len(d.Letters) > lettersPerPage {
		d.Letters = d.Letters[:lettersPerPage]
		d.Next = &d.Letters[lettersPerPage-1].At
	}
	return d
}

// letter returns the dead letter of a request; nil if there is none.
func (c *Console) letter(r *http.Request) (*deadletters.Whole, error) {
	at, err := deadletters.ParsePartitionOffset(r.PathValue("partition") + "/" + r.PathValue("offset"))
	if err != nil {
		return nil, nil
	}
	if c.letters == nil {
		return nil, health.ErrNoKafka
	}
	ctx, cancel := context.WithTimeout(r.Context(), letterTimeout)
	defer cancel()
	topic := c.pipeline().DeadLetters()
	found, err := topic.Find(ctx, at)
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
