package webhook

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/httpcall"
	"github.com/orderclose/orderclose/internal/signature"
	"github.com/orderclose/orderclose/internal/text"
	"github.com/orderclose/orderclose/room"
)

// Role sends the events of outbox_events to a URL. It needs the database, and no Kafka.
const Role = "webhook"

// EnvSecret has the secrets that sign the requests: whsec_ and 24 to 64 bytes in base64. While a secret is replaced, it has two.
const EnvSecret = "ORDERCLOSE_WEBHOOK_SECRET"

// Settings is the section webhook of topics.yaml.
type Settings struct {
	URL string `yaml:"url" is:"url"` // http or https
}

// requestTimeout is the time for a request: the shortest that Standard Webhooks recommend.
const requestTimeout = 15 * time.Second

const example = "webhook: {url: https://shop.example/events}"

var settings = config.Section[Settings]{
	Key: Role, Example: example,
	Check: func(s Settings) (wrong, do string) {
		if s.URL == "" {
			return "url is missing", "write " + example
		}
		return "", ""
	},
}

//go:embed mysql postgres sqlite
var tables embed.FS

// Room returns the room of webhooks, with Role.
func Room() room.Room {
	return room.Room{Name: Role, Settings: settings, Checks: []room.Check{check}, TakesEvents: named, Tables: tables,
		Variables: []string{EnvSecret}, Roles: []room.Role{{
			Name: Role,
			Help: `webhook posts each event to the url of topics.yaml, signed, for those who have no Kafka:
run sweeper webhook. docs/webhook.md says what the receiver must do.
`,
			Database:  true,
			Variables: func(*config.Config) []string { return []string{EnvSecret} },
			New:       newRunner,
		}}}
}

// named reports whether topics.yaml has the section.
func named(c *config.Config) bool {
	_, is := c.Rooms[Role]
	return is
}

func newRunner(h room.Host) (room.Runner, error) {
	to := settings.Of(h.Config)
	switch {
	case !named(h.Config):
		return room.Runner{}, errors.New("topics.yaml does not say where the events go: write " + example)
	case !config.Private(to.URL) && !h.Config.Accepts(config.WithoutTLS):
		return room.Runner{}, fmt.Errorf("webhook.url is http:// of another machine: anybody on the way can read the events, and answer in place of the "+
			"receiver; write https://, or add %s to accept", config.WithoutTLS)
	}
	client, err := httpcall.NewClient(to.URL, signature.Split(h.Servers.Others[EnvSecret]), h.Services)
	if err != nil {
		return room.Runner{}, fmt.Errorf("%w: see webhook.url and %s", err, EnvSecret)
	}
	m, err := newMetrics(h.Registerer)
	if err != nil {
		return room.Runner{}, err
	}
	s := &sender{table: table{h.Store}, post: endpoint{client}.post, poll: pollInterval, logger: h.Logger.With("stage", Role), metrics: m}
	return room.Runner{Needs: []room.Need{{Name: "outbox_events", Check: s.alone}}, Run: s.run}, nil
}

// alone returns an error if the tables cannot be read, or another program has just taken rows of outbox_events.
func (t table) alone(ctx context.Context) error {
	s, err := t.state(ctx)
	if err == nil && s.OtherReader > 0 && s.OtherReader < time.Minute {
		err = errors.New("another program takes rows of outbox_events, such as orderclose run outbox with another topics.yaml: end it, and wait a minute")
	}
	return err
}

const checkName health.Name[state] = "webhook"

// waitsLong is the age from which an event that waits is a finding, and otherReaderFor how long another reader is one.
const waitsLong, otherReaderFor = 5 * time.Minute, 10 * time.Minute

func (s state) otherReader() bool { return s.OtherReader > 0 && s.OtherReader < otherReaderFor }

const runbookSection = "events-do-not-reach-the-webhook"

// Kinds of findings.
const (
	eventsWait  health.ProblemKind = "webhook_waits"
	otherReader health.ProblemKind = "webhook_other_reader"
)

var check = room.Check{
	Name: string(checkName), Every: 10 * time.Second, Limit: 10 * time.Second, Ask: checkName.By(ask), Judge: judge,
	Finds: []health.Kind{
		{Errors: func(err error) bool { return errors.Is(err, orderclose.ErrUnavailable) }}, // another check reports it
		{Name: eventsWait, Severity: health.Today, Runbook: runbookSection, Titles: health.Titles{
			"en": "The receiver of the webhook has not accepted events for minutes", "zh": "Webhook 接收方已数分钟未接受事件"}},
		{Name: otherReader, Severity: health.Today, Runbook: runbookSection, Titles: health.Titles{
			"en": "Another program takes events from the webhook", "zh": "另一个程序正在取走 Webhook 的事件"}},
	},
}

func ask(p health.Asked, ctx context.Context) (state, error) {
	switch {
	case !named(p.Settings()):
		return state{}, nil
	case p.Database() == nil:
		return state{}, health.ErrNoDatabase
	}
	return table{p.Database()}.state(ctx)
}

func judge(f *health.Findings) {
	answer := checkName.Of(f.Facts)
	s := answer.Value
	if s.Oldest >= waitsLong {
		detail := fmt.Sprintf("%s, the oldest for %s: %d for the first attempt, %d for the next attempt, %d for an earlier event of the same order",
			text.Counted(s.Waiting, "event waits", "events wait"), config.FormatDuration(s.Oldest.Truncate(time.Second)),
			s.Waiting-s.Refused-s.Behind, s.Refused, s.Behind)
		detail = strings.Join(append([]string{detail}, s.First...), "; ")
		f.Add(eventsWait, s.Waiting, detail).Since = answer.At.Add(-s.Oldest)
	}
	if s.otherReader() {
		f.Add(otherReader, 0, fmt.Sprintf("it took rows of outbox_events %s ago", config.FormatDuration(s.OtherReader.Truncate(time.Second))))
	}
}
