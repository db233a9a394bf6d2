package send

import (
	"context"
	"sync"

	"github.com/orderclose/orderclose/internal/wire"
)

// parallel is how many partitions one AppendAll appends to at once, apart from those that failed
// before. Those are tried one after the other, beside the others.
const parallel = 4

// AppendAll appends records to their partitions of several topics. It calls each with each result,
// one after the other, and returns when all appends have ended. A partition that fails or rests delays
// no other.
func (s *Sender) AppendAll(ctx context.Context, topics map[string][]wire.RawRecord, each func(Result)) {
	var reporting sync.Mutex
	report := func(r Result) {
		reporting.Lock()
		defer reporting.Unlock()
		each(r)
	}
	slots, probes := make(chan struct{}, parallel), make(chan struct{}, 1)
	var running sync.WaitGroup
	for topic, records := range topics {
		running.Go(func() {
			parts, failed := s.Group(ctx, topic, records)
			if parts == nil {
				report(failed)
			}
			for p, part := range parts {
				running.Go(func() {
					to, slot := Destination{topic, p}, slots
					if s.health.failed(to) {
						slot = probes
					}
					slot <- struct{}{}
					r := s.Append(ctx, to, part)
					<-slot
					report(r)
				})
			}
		})
	}
	running.Wait()
}
