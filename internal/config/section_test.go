package config_test

import (
	"testing"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

type trial struct {
	Topic  string `yaml:"topic"`
	Mode   string `yaml:"mode" enum:"slow fast"`
	Source string `yaml:"source"`
}

var trialSection = config.Section[trial]{
	Key: "trial", Defaults: trial{Topic: "trials", Mode: "slow"},
	Check: func(s trial) (string, string) {
		if s.Mode == "fast" && s.Source == "" {
			return "fast needs a source", "write source: shop.orders"
		}
		return "", ""
	},
}

// changeSection is that of a room which reads a topic of the shop.
var changeSection = config.Section[trial]{Key: "change", Topic: "topic"}

func TestSection_OfReturnsTheSettingsOfTheFileOrTheDefaults(t *testing.T) {
	for text, want := range map[string]trial{
		"":                      {Topic: "trials", Mode: "slow"},
		"trial:\n":              {Topic: "trials", Mode: "slow"},
		"topics: {prefix: eu.}": {Topic: "trials", Mode: "slow"},
		"topics: {prefix: eu.}\ntrial: {topic: x, source: eu.x.y}": {Topic: "x", Mode: "slow", Source: "eu.x.y"},
	} {
		c := must.Get(config.Parse("t", []byte("buckets: [1m]\n"+text), trialSection))(t)
		expect.Equal(t, trialSection.Of(c), want, "%q", text)
		_, given := c.Rooms["trial"]
		expect.Equal(t, given, text != "" && text != "topics: {prefix: eu.}", "%q: given", text)
	}
	expect.Equal(t, trialSection.Of(config.Default()), trial{Topic: "trials", Mode: "slow"}, "without the section")
	expect.Same(t, trialSection.Keys(), []string{"trial.mode", "trial.source", "trial.topic"}, "keys")
}

func TestSection_IsRefusedWithItsPosition(t *testing.T) {
	for text, want := range map[string]string{
		"trial: {mode: fast}":           "t:2:8: trial: fast needs a source; write source: shop.orders",
		"change: {topic: delay_1m}":     `t:2:17: change.topic: "delay_1m" is a topic of orderclose; name one of the shop`,
		"change: {topic: order-events}": `t:2:17: change.topic: "order-events" is a topic of orderclose; name one of the shop`,
		"change: {topic: a b}":          "t:2:17: change.topic: \"a b\" has the letter ' ', which Kafka refuses; use a-z, A-Z, 0-9, dot, underscore and hyphen only",
		"trial: {mood: slow}":           `t:2:9: trial: unknown key "mood"; did you mean mode?`,
		"triall: {mode: slow}":          `t:2:1: unknown key "triall"; did you mean trial?`,
		"topics: {trial: x}":            `t:2:10: topics: unknown key "trial"; write it at the top level of the file: trial: {…}`,
	} {
		_, err := config.Parse("t", []byte("buckets: [1m]\n"+text), trialSection, changeSection)
		if err == nil {
			t.Errorf("%s is accepted", text)
			continue
		}
		expect.Equal(t, err.Error(), want, "%s", text)
	}
}

// A typing error is still found by a program that skips the sections of rooms which it does not have.
func TestSection_OfAnotherProgramIsRefusedOrSkipped(t *testing.T) {
	const refused = `t:2:1: unknown key "trial": this program has no room of this name; known here: ` +
		"accept, buckets, closer, compensator, delays, kafka, orders, partitions, replication, sync, topics"
	for _, c := range []struct {
		text  string
		rooms []config.AnySection
		want  string // the error; "": none
	}{
		{"trial: {mode: slow}", nil, refused},
		{"trial: {mode: slow}", []config.AnySection{config.OtherRooms()}, ""},
		{"trial: slow", []config.AnySection{config.OtherRooms()}, refused},
		{"bukets: {}", []config.AnySection{config.OtherRooms()}, `t:2:1: unknown key "bukets"; did you mean buckets?`},
	} {
		_, err := config.Parse("t", []byte("buckets: [1m]\n"+c.text), c.rooms...)
		got := ""
		if err != nil {
			got = err.Error()
		}
		expect.Equal(t, got, c.want, "%s", c.text)
	}
}
