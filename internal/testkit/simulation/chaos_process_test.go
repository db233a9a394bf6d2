package simulation

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer"
	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/pipeline"
)

// redisAddress is the address of Redis. Its client looks up a name, which a bubble does not allow.
const redisAddress = "127.0.0.1:6379"

// process is a process of the pipeline in a world. It has its own network to the servers and its own clock, and it can be stopped or killed.
type process struct {
	name    string
	roles   []pipeline.Role
	world   *chaosWorld
	network *network
	ahead   *atomic.Int64 // by how much its clock is ahead, in nanoseconds

	app *pipeline.App
	// Guarded by world.mu:
	wants   orderclose.Buckets // the buckets of the topics.yaml that it last accepted
	ended   bool               // it no longer reads the file
	reloads sync.WaitGroup     // in progress
	kafka   *kafka.Cluster
	redis   redis.UniversalClient
	ctx     context.Context // ends when the process must stop
	cancel  context.CancelFunc
	done    chan struct{} // is closed when the process has ended
	tenure  *tenure       // nil: it has no compensator
}

// launch starts a process with some roles.
func (w *chaosWorld) launch(name string, roles ...pipeline.Role) *process {
	p := &process{name: name, roles: roles, world: w, network: w.newNetwork(), ahead: w.clockOf(name), done: make(chan struct{})}
	var err error
	p.kafka, err = kafka.New(kafka.Options{Brokers: w.servers.Brokers(), ClientID: name, Dial: p.network.Dial, SessionTimeout: w.plan.session(),
		PoisonFreedMemory: true, Logger: w.logger})
	if err != nil {
		w.violation("harness", "%s: %v", name, err)
		return p
	}
	p.redis = redis.NewClient(&redis.Options{Addr: redisAddress, MaxRetries: 1, ContextTimeoutEnabled: true, Dialer: p.network.Dial})
	cfg := w.config()
	p.wants = cfg.Buckets
	var own closer.Store
	if w.plan.closesInGo() {
		own = hookedStore{w.db, w.service.before}
	}
	p.app, err = pipeline.New(pipeline.Options{
		Store:  own,
		Config: cfg, Connections: clients.Clients{Kafka: p.kafka, Store: w.db, Redis: p.redis}, Logger: w.logger,
		Registerer: prometheus.NewRegistry(), TopicsFile: w.filePath(),
		Services: transportBy(p.network.Dial), Secrets: pipeline.Secrets{HTTP: serviceSecrets, Payment: serviceSecrets},
		Now: func() time.Time { return setNow(time.Duration(p.ahead.Load())) },
	})
	if err != nil {
		w.violation("harness", "%s: %v", name, err)
		return p
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.tenure = w.keeps(roles)
	w.running.Go(func() {
		defer close(p.done)
		if err := p.app.Run(p.ctx, roles...); err != nil {
			w.violation("harness", "%s: %v", name, err)
		}
		w.mu.Lock()
		p.ended = true
		w.mu.Unlock()
		p.reloads.Wait()
		p.kafka.Close()
		_ = p.redis.Close()
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.processes[name] = p
	w.running.Go(p.reload) // the file may have changed since
	return p
}

// transportBy returns a transport to the service, like the transport of package signed.
func transportBy(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Transport {
	return &http.Transport{DialContext: dial, IdleConnTimeout: 90 * time.Second}
}

// newNetwork returns a network to the servers. It is cut when the world ends.
func (w *chaosWorld) newNetwork() *network {
	n := newNetwork(func(ctx context.Context, network, address string) (net.Conn, error) {
		w.mu.Lock()
		away := w.away[address] > 0
		w.mu.Unlock()
		if away {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errNetworkDown}
		}
		switch address {
		case shopAddress:
			return w.service.dial(ctx, network)
		case redisAddress:
			return w.servers.Redis.Dial()
		}
		return w.servers.Dial(ctx, network, address)
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.networks = append(w.networks, n)
	return n
}

// stop stops a process in an orderly way.
func (p *process) stop() {
	began := time.Now()
	p.tenure.end(p.world)
	p.cancel()
	<-p.done
	if took := time.Since(began); took > shutdownTime {
		p.world.violation("late", "%s took %v to stop, at most %v is allowed", p.name, took, shutdownTime)
	}
}

// kill ends a process like kill -9, as the servers see it: no request arrives from now on. Its goroutines end later.
func (p *process) kill() {
	p.tenure.end(p.world)
	p.network.cut()
	p.cancel()
}

// playing returns the processes that have a role at present, in the order of their names.
func (w *chaosWorld) playing(role pipeline.Role) []*process {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []*process
	for _, name := range sortedKeys(w.processes) {
		for _, r := range w.processes[name].roles {
			if r == role {
				all = append(all, w.processes[name])
			}
		}
	}
	return all
}

// take removes a process from the running ones and returns it; nil if it is not there.
func (w *chaosWorld) take(name string) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.processes[name]
	delete(w.processes, name)
	return p
}

// clockOf returns the clock of a machine. The clock outlives the machine's processes.
func (w *chaosWorld) clockOf(name string) *atomic.Int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.clocks[name] == nil {
		w.clocks[name] = &atomic.Int64{}
	}
	return w.clocks[name]
}

// launchAll starts the first processes.
func (w *chaosWorld) launchAll() {
	if w.plan.Together {
		w.launch("all", w.plan.roles()...)
		return
	}
	for _, role := range w.plan.roles() {
		w.launch(string(role), role)
	}
}

// stopAll stops all running processes at once.
func (w *chaosWorld) stopAll() {
	w.mu.Lock()
	var all []*process
	for _, name := range sortedKeys(w.processes) {
		all = append(all, w.processes[name])
	}
	w.mu.Unlock()
	var stops sync.WaitGroup
	for _, p := range all {
		stops.Go(p.stop)
	}
	stops.Wait()
	w.running.Wait()
}

// next returns the name of an additional process of a role.
func (w *chaosWorld) next(role string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.launched++
	return fmt.Sprintf("%s-%d", role, w.launched)
}

// setNow returns the present by a machine's clock that somebody has set ahead: the wall clock differs, and the monotonic clock does not. Package time
// has no way to express that, and has no monotonic clock at all under synctest. So setNow writes both into the time.
func setNow(ahead time.Duration) time.Time {
	const hasMonotonic, secondsAt = 1 << 63, 30
	now := time.Now()
	sinceYear1885 := now.Add(ahead).Unix() - time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	set := time.Unix(0, 0) // in the local zone, like time.Now
	fields := (*struct {
		wall uint64
		ext  int64
	})(unsafe.Pointer(&set))
	fields.wall = hasMonotonic | uint64(sinceYear1885)<<secondsAt | uint64(now.Add(ahead).Nanosecond())
	fields.ext = int64(now.Sub(clockStart)) + 1
	return set
}

// clockStart is the time at which every clock of synctest begins.
var clockStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
