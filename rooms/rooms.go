// Package rooms has the list of rooms that the program orderclose links.
package rooms

import (
	"github.com/orderclose/orderclose/room"
	"github.com/orderclose/orderclose/rooms/webhook"
)

// All returns the rooms. This is the only place outside of a room's folder that names it in Go.
func All() []room.Room {
	return []room.Room{
		webhook.Room(),
	}
}
