package intake

import (
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestSettings_AreRead(t *testing.T) {
	c := must.Get(config.Parse("t", []byte("buckets: [1m]\nintake: {topic: shop.orders, format: maxwell, zone: +08:00}\n"), settings))(t)
	expect.Equal(t, settings.Of(c), Settings{Topic: "shop.orders", Format: "maxwell", Zone: "+08:00"}, "settings")
	topic, group := input(c)
	expect.That(t, topic == "shop.orders" && group == "orderclose-intake-shop.orders", "it reads %s as %s", topic, group)
}

func TestSettings_AreRefusedWithTheirPosition(t *testing.T) {
	for text, want := range map[string][]string{
		"intake: {topic: shop.orders}": {"t:2:9: intake: topic or format is missing; write intake: {topic: shop.orders, format: debezium}"},
		"intake: {topic: shop.orders, format: avro, zone: here}": {
			`t:2:38: intake.format: "avro" is neither debezium, canal nor maxwell; write debezium, canal or maxwell`,
			`t:2:50: intake.zone: "here" is not a known time zone; write UTC, an offset such as +08:00, or a name such as Asia/Shanghai`,
		},
		"intake: {topic: delay_1m, format: canal}": {`t:2:17: intake.topic: "delay_1m" is a topic of orderclose; name one of the shop`},
	} {
		_, err := config.Parse("t", []byte("buckets: [1m]\n"+text), settings)
		must.That(t, err != nil, "%s is accepted", text)
		expect.Same(t, strings.Split(err.Error(), "\n"), want, "%s", text)
	}
}
