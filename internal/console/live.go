package console

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/console/access"
)

// nowInterval is page.Live of the page Now, the only one with live updates.
const nowInterval = 5 * time.Second

// maxLive bounds how many pages get live updates at once, and maxLiveOfUser how many of them have one user.
// Other pages are told to reload. The tabs of a browser share one update.
const (
	maxLive       = 200
	maxLiveOfUser = 20
)

// liveCount counts the live updates that are on. The zero value is ready. It is safe for concurrent use.
type liveCount struct {
	mu    sync.Mutex
	all   int
	users map[string]int // by name; those without an identity have the name ""
}

// begin reports whether one more live update of the user may begin. If so, the caller calls end.
func (l *liveCount) begin(user string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= maxLive || user != "" && l.users[user] >= maxLiveOfUser {
		return false
	}
	if l.users == nil {
		l.users = map[string]int{}
	}
	l.all++
	l.users[user]++
	return true
}

func (l *liveCount) end(user string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.users[user]--; l.users[user] == 0 {
		delete(l.users, user)
	}
}

// serveLive sends the changing part of the page Now each time it has changed, as server-sent events.
func (c *Console) serveLive(w http.ResponseWriter, r *http.Request) {
	user := access.From(r.Context()).Name
	if !c.live.begin(user) {
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer c.live.end(user)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // otherwise nginx collects events before it sends them
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // that of the server is for requests, which this one is no more
	last := ""
	for {
		p := c.nowPage(r)
		var part bytes.Buffer
		if err := templates()[p.Name].ExecuteTemplate(&part, "live", p); err != nil {
			c.o.Logger.Error("render a live update", "page", p.Name, "err", err)
			return
		}
		event := ": nothing has changed\n\n"
		if now := part.String(); now != last {
			last, event = now, "data: "+strings.ReplaceAll(now, "\n", "\ndata: ")+"\n\n"
		}
		_ = out.SetWriteDeadline(time.Now().Add(10 * time.Second))
		if _, err := fmt.Fprint(w, event); err != nil || out.Flush() != nil {
			return
		}
		select {
		case <-time.After(p.Live):
		case <-r.Context().Done():
			return
		case <-c.ctx.Done():
			return
		}
	}
}
