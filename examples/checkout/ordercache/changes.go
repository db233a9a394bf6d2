package ordercache

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Message returns the message that announces the version of an order to all processes. A Lua
// script may write it too: the version, a space, and the id.
func Message(id string, version int64) string { return strconv.FormatInt(version, 10) + " " + id }

// parseMessage is the reverse of Message.
func parseMessage(m string) (id string, version int64, ok bool) {
	number, id, found := strings.Cut(m, " ")
	version, err := strconv.ParseInt(number, 10, 64)
	return id, version, found && err == nil && id != ""
}

// subscribePause is the pause after a failed attempt to subscribe.
const subscribePause = time.Second

// Follow subscribes to the channel on which processes announce changes, until ctx ends. changed is
// called for each message, also for those of this process. The client connects again by itself after
// a failure. Redis does not repeat messages: those that were sent meanwhile are lost.
func Follow(ctx context.Context, client redis.UniversalClient, channel string, changed func(id string, version int64)) {
	for ctx.Err() == nil {
		follow(ctx, client, channel, changed)
		select {
		case <-ctx.Done():
		case <-time.After(subscribePause):
		}
	}
}

// follow follows one subscription to its end.
func follow(ctx context.Context, client redis.UniversalClient, channel string, changed func(id string, version int64)) {
	subscription := client.Subscribe(ctx, channel)
	defer func() { _ = subscription.Close() }()
	messages := subscription.Channel(redis.WithChannelSize(1000))
	for {
		select {
		case <-ctx.Done():
			return
		case m, ok := <-messages:
			if !ok {
				return
			}
			if id, version, ok := parseMessage(m.Payload); ok {
				changed(id, version)
			}
		}
	}
}
