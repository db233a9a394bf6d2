package producer_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/producer"
)

func TestSASL_NoVerbShowsThePassword(t *testing.T) {
	s := producer.SASL{Mechanism: producer.SASLScramSHA512, User: "checkout", Password: "hunter2"}
	marshaled := must.Get(json.Marshal(s))(t)
	text := string(marshaled)
	for _, v := range []any{s, &s, producer.Options{SASL: &s}, &producer.Options{SASL: &s}} {
		text += fmt.Sprintf("%v %+v %#v", v, v, v)
	}
	expect.That(t, !strings.Contains(text, "hunter2") && strings.Contains(text, `SCRAM-SHA-512 as user "checkout"`), "printed as %s", text)
}

func TestNew_RejectsInvalidSASLAndBrokers(t *testing.T) {
	for want, o := range map[string]producer.Options{
		`SASL: kafka: SASL PLAIN needs the password of user "checkout"`: {
			Brokers: []string{"127.0.0.1:1"}, SASL: &producer.SASL{Mechanism: producer.SASLPlain, User: "checkout"},
		},
		"producer: Options.Brokers, TLS or SASL: there are no brokers":                {},
		`producer: Options.Brokers, TLS or SASL: "localhost" is not host:port; write`: {Brokers: []string{"localhost"}},
	} {
		o.TopicsFile = "../topics.yaml"
		_, err := producer.New(o)
		expect.That(t, err != nil && strings.Contains(err.Error(), want), "got %v, want %s", err, want)
	}
}
