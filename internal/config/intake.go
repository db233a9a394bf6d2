package config

import (
	"fmt"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

// IntakeFormats are the formats of change records.
var IntakeFormats = []string{"debezium", "canal", "maxwell"}

// Intake says where the change records of the shop's orders are, for the role intake.
type Intake struct {
	Topic  string // of the shop: topics.prefix is not put before it; "": there is none
	Format string // one of IntakeFormats
	Zone   string // of a TIMESTAMP that a record has as text without a zone; default: UTC
}

func (i *Intake) grammar() parser {
	return section(fields{
		"topic":  text(&i.Topic),
		"format": choice(&i.Format, IntakeFormats...),
		"zone": textOf(func(text string) (string, string) {
			if _, err := mapping.ParseZone(text); err != nil {
				return err.Error(), "write UTC, an offset such as +08:00, or a name such as Asia/Shanghai"
			}
			i.Zone = text
			return "", ""
		}),
	})
}

// checkIntake refuses a topic without a format, and a topic of orderclose.
func (r *reader) checkIntake(s *settings) {
	const path = "intake"
	node := r.node("intake.topic", "intake.format", "intake.zone")
	if node == r.root || r.anyBad(path) {
		return
	}
	if s.Intake.Topic == "" || s.Intake.Format == "" {
		r.refuse(path, node, "topic or format is missing", "write intake: {topic: shop.orders, format: debezium}")
		return
	}
	r.checkLetters("intake.topic", s.Intake.Topic)
	own := s.config().Topics
	for _, name := range own.all() {
		if _, bucket := own.BucketOf(s.Intake.Topic); *name.at == s.Intake.Topic || bucket {
			r.refuse("intake.topic", node, fmt.Sprintf("%s is a topic of orderclose", quote(s.Intake.Topic)), "name the topic that your connector writes")
			return
		}
	}
}
