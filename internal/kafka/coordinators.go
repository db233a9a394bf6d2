package kafka

import (
	"context"
	"net"
	"sync"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/findcoordinator"
)

// coordinators caches the coordinator of each group that this process asks about, by its broker's
// id. The client library would ask for the coordinator before each request about a group.
type coordinators struct {
	mu      sync.Mutex
	byGroup map[string]int32
}

func (k *coordinators) get(group string) (broker int32, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	broker, ok = k.byGroup[group]
	return broker, ok
}

func (k *coordinators) set(group string, broker int32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byGroup == nil {
		k.byGroup = map[string]int32{}
	}
	k.byGroup[group] = broker
}

func (k *coordinators) forget(group string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.byGroup, group)
}

// toCoordinator sends a request about a group to the group's coordinator. If the cached
// coordinator does not answer or is the coordinator no longer, toCoordinator asks which broker it is
// now, and sends the request again.
func (t *transport) toCoordinator(ctx context.Context, addr net.Addr, group string, req kafka.Request) (kafka.Response, error) {
	if err := ctx.Err(); err != nil { // the library would send the request, and then not wait for the answer
		return nil, err
	}
	broker, cached := t.coordinators.get(group)
	for {
		if !cached {
			var err error
			if broker, err = t.findCoordinator(ctx, addr, group); err != nil {
				return nil, err
			}
		}
		res, err := t.exchange(ctx, addr, &routed{Message: req, broker: &broker})
		if err == nil && !coordinatorMoved(req, res) {
			return res, nil
		}
		t.coordinators.forget(group)
		if !cached || ctx.Err() != nil {
			return res, err
		}
		cached = false
	}
}

// findCoordinator asks any broker for the coordinator of a group. If there is none, or this user may not
// know it, findCoordinator returns -1, which means any broker: that broker's answer says why.
func (t *transport) findCoordinator(ctx context.Context, addr net.Addr, group string) (int32, error) {
	res, err := t.exchange(ctx, addr, &routed{Message: &findcoordinator.Request{Key: group}})
	if err != nil {
		return 0, err
	}
	answer := res.(*findcoordinator.Response)
	if answer.ErrorCode != 0 || answer.NodeID < 0 {
		return -1, nil
	}
	t.coordinators.set(group, answer.NodeID)
	return answer.NodeID, nil
}

// coordinatorMoved reports whether an answer says that the broker is not the group's coordinator.
func coordinatorMoved(req kafka.Request, res kafka.Response) (moved bool) {
	eachErrorCode(req, res, func(code int16, _ string) {
		switch kafka.Error(code) {
		case kafka.NotCoordinatorForGroup, kafka.GroupCoordinatorNotAvailable:
			moved = true
		}
	})
	return moved
}
