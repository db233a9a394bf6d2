package pipeline

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestApp_SaysWhatTheBrokersCannotDo(t *testing.T) {
	cfg, log := config.Default(), &testkit.LogBuffer{}
	broker, _, _ := newBroker(t, cfg.Topics.Control, 1, "none")
	a := must.Get(New(Options{Config: cfg, Servers: Servers{Brokers: broker.ListenAddrs()}, Logger: slog.New(slog.NewTextHandler(log, nil))}))(t)
	defer a.Close()
	a.warnOfLimits(t.Context())
	expect.Equal(t, log.String(), "", "the log for brokers that can do all")
	broker.ControlKey(int16(kmsg.InitProducerID), func(req kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		res := req.ResponseKind().(*kmsg.InitProducerIDResponse)
		res.ErrorCode = kerr.UnsupportedVersion.Code
		return res, nil, true
	})
	a.warnOfLimits(t.Context())
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "the brokers lack an ability of Apache Kafka") ||
		!strings.Contains(text, "no idempotent appends") {
		t.Errorf("logged %s", text)
	}
}
