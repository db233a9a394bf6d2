package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/backlog"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/deadletters"
	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/reads"
	"github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/pausing"
	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/text"
	"github.com/orderclose/orderclose/internal/topics"
	"github.com/orderclose/orderclose/internal/wire"
)

// Pipeline is one pipeline, with the servers that a command or the console may ask. Its methods
// are the questions of both. Kafka, Store and Redis are nil if the process knows no such server.
type Pipeline struct {
	Config *config.Config
	Kafka  *kafka.Cluster
	Store  *store.Store
	Redis  redis.UniversalClient
	// OwnStore says that orders are closed by a Store of the program, and not in the database.
	OwnStore bool
	// OpenLetters, if not nil, returns the open dead letters by cause, and spares the verdict reading their topic.
	OpenLetters func() (deadletters.Counts, error)
	// Broken, if not nil, returns why topics.yaml cannot be used; nil: it can.
	Broken func() error
}

// Log is what the questions to Kafka need. Log of internal/kafka/reads implements it.
type Log interface {
	deadletters.Log
	send.Sender
	backlog.Log
	Bounds(ctx context.Context, topic string, partition int) (first, end int64, err error)
	OffsetAt(ctx context.Context, topic string, partition int, t time.Time) (int64, error)
	Window(ctx context.Context, topic string, from, to kafka.Moment) ([]reads.Span, error)
	ReadSpan(ctx context.Context, topic string, s reads.Span, each func([]wire.RawRecord) error) error
}

// reachKafka returns an error if the process knows no Kafka, or Kafka does not answer: later errors only say which request failed.
func (p Pipeline) reachKafka(ctx context.Context) error {
	if p.Kafka == nil {
		return health.ErrUnused
	}
	return p.Kafka.Ping(ctx)
}

// How long a round of the requests of a status may take. While a broker is silent, each round waits in vain for the partitions that the
// broker leads, so the rounds are short then: the status must be there within 5 s.
const roundLimit, roundLimitSilent = 10 * time.Second, 700 * time.Millisecond

// Status returns what waits in each topic, and who is in its group. The error says that Kafka does not answer at all;
// what is wrong with one topic or partition is its Problem.
func (p Pipeline) Status(ctx context.Context) (backlog.Status, error) {
	if p.Kafka == nil {
		return backlog.Status{}, health.ErrUnused
	}
	silent, err := p.Kafka.Silent(ctx)
	if err != nil {
		return backlog.Status{}, err
	}
	round := roundLimit
	if len(silent) > 0 {
		round = roundLimitSilent
	}
	listing, cancel := context.WithTimeout(ctx, round)
	defer cancel()
	s := backlog.ReadStatus(ctx, reads.Log{Cluster: p.Kafka}, backlog.Topics(listing, p.Kafka, p.Config), round, time.Now)
	s.Silent = silent
	return s, nil
}

// The default limits of a search for one order.
const (
	HistoryRecords = 100_000 // of each topic
	HistoryTimeout = 20 * time.Second
)

// Histories lets two callers search at once, because one search may take 11 MB. Others wait for historyWait.
type Histories chan struct{}

const historiesAtOnce, historyWait = 2, 5 * time.Second

// ErrBusy says that other searches for orders run.
var ErrBusy = fmt.Errorf("%d other searches for orders run, and none has ended within %v: try again", historiesAtOnce, historyWait)

// NewHistories returns the Histories of a process.
func NewHistories() Histories { return make(Histories, historiesAtOnce) }

// Of is Pipeline.History with the default limits. The error is ErrBusy, or that of ctx.
func (h Histories) Of(ctx context.Context, p Pipeline, id string) (History, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, historyWait, ErrBusy)
	defer cancel()
	select {
	case h <- struct{}{}:
	case <-waiting.Done():
		return History{}, context.Cause(waiting)
	}
	defer func() { <-h }()
	ctx, cancel = context.WithTimeout(ctx, HistoryTimeout)
	defer cancel()
	return p.History(ctx, id, HistoryRecords), nil
}

// History returns what the database and Kafka know about an order. It reads at most limit records of each topic. What could not be asked is in
// History.NotRead; History.Database is nil without a database, and History.Topics is empty without Kafka. An integer id may begin with zeros, as
// ZEROFILL shows it: History.ID has none, unless that id is known.
func (p Pipeline) History(ctx context.Context, id string, limit int64) History {
	var notRead []string
	var database *store.OrderHistory
	search := SearchLimit{Records: limit}
	if p.Store != nil {
		row, err := p.Store.OrderHistory(ctx, id)
		if err != nil {
			notRead = append(notRead, "the database: "+err.Error())
		} else if database = &row; row.Order != nil {
			search.Since = row.Order.CreatedAt
		}
	}
	var failure *compensator.Failure
	if database != nil && database.Order != nil && unpaid(database.Order) && !database.Order.Due.After(database.At) {
		on, _ := p.Pauses(ctx)
		if i := slices.IndexFunc(on, func(one pausing.Pause) bool { return one.Covers(database.Order.Category) }); i >= 0 {
			failure = &compensator.Failure{OrderID: id, Cause: string(orderclose.Paused), Error: on[i].String()}
		} else {
			failure, _ = p.failure(ctx, orderclose.CloseRequest{OrderID: id, CreatedAt: search.Since, Due: database.Order.Due}, true)
		}
	}
	var topics []HistoryTopic
	if p.Kafka != nil {
		if err := p.Kafka.Ping(ctx); err != nil {
			notRead = append(notRead, err.Error())
		} else {
			all, err := OrderTopics(ctx, p.Kafka, p.Config)
			if err != nil {
				notRead = append(notRead, err.Error())
			}
			topics = SearchTopics(ctx, reads.Log{Cluster: p.Kafka}, all, id, search)
		}
	}
	h := NewHistory(id, time.Now(), database, topics, failure, Closing{p.Config.Closer.AsksPayment(), p.closesElsewhere()})
	h.NotRead = append(notRead, h.NotRead...)
	plain := strings.TrimLeft(id, "0")
	if !h.Known() && plain != id && plain != "" && p.Config.Orders != nil && p.Config.Orders.ID.Type == mapping.Integer {
		return p.History(ctx, plain, limit)
	}
	return h
}

// Hours has the compensations of the last week. If it has none, Hours has the newest of the 90 days for which rows are kept, which is then late.
type Hours struct {
	Hours  []overdue.Hour // newest first, at most hoursKept
	Period time.Duration  // of each
	Leases []string       // who has the lease of a compensator, and until when; empty: nobody, or this user may not read it
}

// LastFinished returns the newest compensation that has finished; the zero Hour: none is known.
func (h Hours) LastFinished() overdue.Hour {
	for _, one := range h.Hours {
		if one.State == overdue.Finished {
			return one
		}
	}
	return overdue.Hour{}
}

// LastDay is what the compensations of 24 hours have found.
type LastDay struct {
	overdue.Counts
	Unfinished int `json:"unfinished"` // compensations in which no pass over all overdue orders ended
}

// String returns the counts in words.
func (d LastDay) String() string {
	return fmt.Sprintf("%v; %s did not finish", d.Counts, text.Counted(int64(d.Unfinished), "compensation", "compensations"))
}

// LastDay returns the compensations that began within 24 hours before now; nil: none is known.
func (h Hours) LastDay(now time.Time) (day *LastDay) {
	for _, one := range h.Hours {
		if now.Sub(one.Begin) > 24*time.Hour {
			break
		}
		if day == nil {
			day = &LastDay{}
		}
		day.Add(one.Counts)
		if one.State == overdue.Unfinished {
			day.Unfinished++
		}
	}
	return day
}

// hoursKept bounds Hours. With the default period a week has 168.
const hoursKept = 500

// Hours reads the rows of the compensations in the database. Without a database, and with a program's own Store, there are none.
func (p Pipeline) Hours(ctx context.Context) (h Hours, err error) {
	h.Period = p.Config.Compensator.Period
	if p.Store == nil || p.OwnStore {
		return h, health.ErrNoDatabase
	}
	h.Leases, _ = p.Store.LeaseHolders(ctx)
	h.Hours, err = p.Store.SweepHours(ctx, p.Config.Topics.Close, time.Now().Add(-7*24*time.Hour), hoursKept)
	if err == nil && len(h.Hours) == 0 {
		h.Hours, err = p.Store.SweepHours(ctx, p.Config.Topics.Close, time.Now().Add(-store.HoursFor), 1)
	}
	return h, err
}

// Pauses returns the pauses that are on. Without a database a service closes the orders, and there are none. The error is ErrNoPauses
// if the database that closes the orders is not named.
func (p Pipeline) Pauses(ctx context.Context) ([]pausing.Pause, error) {
	kept, err := p.PausesDatabase()
	if err == nil {
		return kept.Pauses(ctx)
	}
	if _, closing := p.ClosingDatabase(); errors.Is(closing, ErrClosedElsewhere) {
		return nil, nil
	}
	return nil, err
}

// broken returns why topics.yaml cannot be used.
func (p Pipeline) broken(context.Context) error {
	if p.Broken == nil {
		return nil
	}
	return p.Broken()
}

// actionTimeout bounds a write of the audit log.
const actionTimeout = 10 * time.Second

// KeepAction writes to the audit log, the table operator_actions, what an operator has done, if the process has a database. It takes 10 s at most.
func (p Pipeline) KeepAction(ctx context.Context, who, action, result string) error {
	if p.Store == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, actionTimeout)
	defer cancel()
	return p.Store.KeepAction(ctx, who, action, result)
}

// TopicsPlan compares the topics with the configuration, and Kafka's own topic of commits with its replication.
func (p Pipeline) TopicsPlan(ctx context.Context) (TopicsPlan, error) {
	if err := p.reachKafka(ctx); err != nil {
		return TopicsPlan{}, err
	}
	specs := topics.Specs(p.Config)
	findings, err := p.Kafka.Check(ctx, specs)
	if err != nil {
		return TopicsPlan{}, err
	}
	offsets, err := p.Kafka.CheckOffsets(ctx, p.Config.Replication)
	if err != nil {
		return TopicsPlan{}, err
	}
	replicas, err := p.Kafka.CheckReplicas(ctx, specs)
	if err != nil {
		return TopicsPlan{}, err
	}
	return NewTopicsPlan(p.Config, len(specs), slices.Concat(findings, offsets, replicas)), nil
}

// maxReason is the longest reason of a pause, in characters.
const maxReason = 500

// ParsePause returns how long a pause lasts.
func ParsePause(lasting string) (time.Duration, error) {
	d, err := config.ParseDuration(lasting)
	switch {
	case lasting == "":
		err = errors.New("for is missing: say how long, such as 30m")
	case err != nil:
		err = fmt.Errorf("for: %w: write a number and a unit, such as 30m", err)
	default:
		err = CheckPause(d)
	}
	return d, err
}

// CheckPause checks how long a pause lasts.
func CheckPause(d time.Duration) error {
	if d <= 0 || d > pausing.MaxPause {
		return fmt.Errorf("for is %v, want more than 0 and at most %v; pause again if it takes longer", d, pausing.MaxPause)
	}
	return nil
}

// CheckReason checks the reason of a pause.
func CheckReason(reason string) error {
	if n := len([]rune(reason)); strings.TrimSpace(reason) == "" || n > maxReason {
		return fmt.Errorf("reason is missing or longer than %d characters: say why, for the others on call", maxReason)
	}
	return nil
}

// ErrNoPauses says that nothing can be paused here, and what to do instead. It wraps health.ErrNoDatabase.
var ErrNoPauses = fmt.Errorf("a pause is a row of the database, which is not named: %w; without a database let the service that closes the orders answer "+
	"paused or 503, or stop the closers and compensators", health.ErrNoDatabase)

// PausesDatabase returns the database that has the pauses, also those of orders that a service or a Store of the program closes. The
// error is ErrNoPauses.
func (p Pipeline) PausesDatabase() (*store.Store, error) {
	if p.Store == nil {
		return nil, ErrNoPauses
	}
	return p.Store, nil
}
