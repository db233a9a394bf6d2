package bubble

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// sessionOfMembers is how long a member of a group may be silent.
const sessionOfMembers = 6 * time.Second

// silenceOfJoining is how long a member may be silent in a rebalance that does not end:
// less than the 10 s after which a join of ours is given up, so that members that join in
// turns do not each leave a lost one behind for the other.
const silenceOfJoining = 8 * time.Second

// expireGhosts takes members out of groups that have been silent for longer than their
// session. A real broker does that itself. kfake does not where the answer to a join or
// a sync found its connection closed: such a member would keep its partitions for ever.
func (w *chaosWorld) expireGhosts() {
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
			silence := sessionOfMembers + time.Second
			if info.State == "PreparingRebalance" { // who waits for the others is silent, too
				silence = silenceOfJoining
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
	client, err := kgo.NewClient(kgo.SeedBrokers(w.servers.Brokers()...), kgo.Dialer(w.servers.Dial))
	if err != nil {
		w.blame("harness", "%v", err)
		return
	}
	defer client.Close()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = group, member
	m := kmsg.NewLeaveGroupRequestMember()
	m.MemberID = member
	req.Members = append(req.Members, m)
	_, _ = client.Request(w.ctx, req) // it is tried again
}
