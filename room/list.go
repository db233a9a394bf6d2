package room

import (
	"github.com/orderclose/orderclose/internal/config"
)

// Sections returns the sections of topics.yaml of rooms.
func Sections(rooms []Room) (all []Section) {
	for _, r := range rooms {
		if r.Settings != nil {
			all = append(all, r.Settings)
		}
	}
	return all
}

// Others stands for the rooms of other programs, whose keys in a topics.yaml that several programs read are then skipped: for a
// program that runs no roles, such as a checkout.
func Others() Room { return Room{Settings: config.OtherRooms()} }

// WithoutKafka stands for a program that has no Kafka: its topics.yaml need not list the buckets.
func WithoutKafka() Room { return Room{Settings: config.WithoutKafka()} }

// Tables returns the tables of each room whose key is in topics.yaml.
func Tables(rooms []Room, c *config.Config) (all []TableSteps) {
	for _, r := range rooms {
		if _, named := c.Rooms[r.Name]; named && r.Tables != nil {
			all = append(all, TableSteps{Room: r.Name, Files: r.Tables})
		}
	}
	return all
}
