package testkit

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// MostHeap returns about how much more memory objects take while work runs than before, at most, in bytes. It collects
// garbage often, so that little of what it measures is garbage. Nothing else may run meanwhile. Call it outside
// of a synctest bubble, because its clock is the real one.
func MostHeap(work func()) (most int) {
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	runtime.GC()
	runtime.GC() // a sync.Pool is empty after two collections
	before := heap()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				most = max(most, heap()-before)
				time.Sleep(100 * time.Microsecond)
			}
		}
	}()
	work()
	close(stop)
	<-stopped
	return most
}

// heap returns the bytes of the objects on the heap, with those that are not swept yet.
func heap() int {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return int(sample[0].Value.Uint64())
}
