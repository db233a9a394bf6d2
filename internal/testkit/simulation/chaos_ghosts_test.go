package simulation

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/kafka"
)

// session is the session timeout of group members: as short as brokers allow, so that a kill costs seconds; the default while brokers are slow.
func (p *plan) session() time.Duration {
	if p.has("slow") {
		return kafka.DefaultSessionTimeout
	}
	return 6 * time.Second
}

// joinSilence is how long a member may be silent in a rebalance that does not end. It is less than the 15 s after which our join is given up. Otherwise
// members that join in turns would each leave a lost member behind for the other.
const joinSilence = 13 * time.Second

// expireSilentMembers removes members from groups that were silent for longer than their session. A real broker does that itself. kfake does not, if it
// could not send the answer to a join or a sync: such a member would keep its partitions for ever.
func (w *chaosWorld) expireSilentMembers() {
	heard := map[string]time.Time{} // by member; guarded by w.mu
	w.servers.Broker.ControlKey(int16(kmsg.Heartbeat), func(req kmsg.Request) (kmsg.Response, error, bool) {
		w.servers.Broker.KeepControl()
		w.mu.Lock()
		defer w.mu.Unlock()
		heard[req.(*kmsg.HeartbeatRequest).MemberID] = time.Now()
		return nil, nil, false
	})
	for wait(w.ctx, time.Second) {
		for _, group := range w.groups() {
			info := w.servers.Broker.GroupInfo(group)
			if info == nil {
				continue
			}
			silence := w.plan.session() + time.Second
			if info.State == "PreparingRebalance" { // a member that waits for the others is silent too
				silence = joinSilence
			}
			for _, m := range info.Members {
				w.mu.Lock()
				last, known := heard[m.MemberID]
				if !known {
					heard[m.MemberID] = time.Now()
				}
				w.mu.Unlock()
				if known && time.Since(last) > silence {
					w.expire(group, m.MemberID)
				}
			}
		}
	}
}

func (w *chaosWorld) expire(group, member string) {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = group, member
	m := kmsg.NewLeaveGroupRequestMember()
	m.MemberID = member
	req.Members = append(req.Members, m)
	w.ask(func(c *kgo.Client) { _, _ = c.Request(w.ctx, req) }) // on failure expireSilentMembers tries again
}
