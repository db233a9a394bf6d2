package kafka

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// protection is how connections to a broker are protected.
type protection struct {
	name   string
	broker []kfake.Opt
	client Security
}

// protections are those with one answer for a connection to six of them.
func protections() []protection {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	certificates, trusted := server.TLS.Certificates, server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	encrypted := func(version uint16) (kfake.Opt, *tls.Config) {
		return kfake.TLS(&tls.Config{Certificates: certificates, MaxVersion: version}), &tls.Config{RootCAs: trusted, ServerName: "example.com"}
	}
	scram := &SASL{Mechanism: "SCRAM-SHA-256", User: "relay", Password: "secret"}
	login := []kfake.Opt{kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "relay", "secret")}
	tls12, trusts12 := encrypted(tls.VersionTLS12)
	tls13, trusts13 := encrypted(tls.VersionTLS13)
	return []protection{
		{"plain", nil, Security{}},
		{"SCRAM", login, Security{SASL: scram}},
		{"TLS", []kfake.Opt{tls13}, Security{TLS: trusts13}},
		{"TLS 1.2 and SCRAM", append([]kfake.Opt{tls12}, login...), Security{TLS: trusts12, SASL: scram}},
	}
}

// reset closes the connections of a client, as a broker that is restarted does, or a firewall.
func (c *Cluster) reset() {
	c.transport.brokers.mu.Lock()
	defer c.transport.brokers.mu.Unlock()
	for _, of := range c.transport.brokers.byAddress {
		for conn := range of.open {
			conn.Close()
		}
	}
}

// TestConsume_SlowIsNotDead: two processes share six groups, as relays do. Their partitions are served all the time while
// each answer takes up to 3 s, also after all connections were reset.
func TestConsume_SlowIsNotDead(t *testing.T) {
	const groups, partitions = 6, 2
	for _, p := range protections() {
		for _, slow := range []time.Duration{600 * time.Millisecond, 1300 * time.Millisecond, 2 * time.Second, 3 * time.Second} {
			t.Run(fmt.Sprintf("%s/%v", p.name, slow), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBroker(t, append(p.broker, kfake.SeedTopics(partitions, "t0", "t1", "t2", "t3", "t4", "t5"), kfake.NumBrokers(3),
						kfake.Ports(9092, 9093, 9094))...)
					var serving atomic.Int32
					ctx, stop := context.WithCancel(t.Context())
					var running sync.WaitGroup
					var clusters []*Cluster
					for range 2 {
						c := b.cluster(Options{Security: p.client})
						clusters = append(clusters, c)
						for g := range groups {
							running.Go(func() {
								c.Consume(ctx, fmt.Sprint("g", g), fmt.Sprint("t", g), func(ctx context.Context, _ wire.Claim) {
									serving.Add(1)
									defer serving.Add(-1)
									<-ctx.Done()
								})
							})
						}
					}
					time.Sleep(20 * time.Second)
					b.slow.Store(int64(slow))
					time.Sleep(20 * time.Second)
					for _, c := range clusters {
						c.reset()
					}
					served, idle, longest := 0, 0, 0
					const looks = 1200 // each 500 ms
					for range looks {
						time.Sleep(500 * time.Millisecond)
						n := int(serving.Load())
						served += n
						if idle++; n > 0 {
							idle = 0
						}
						longest = max(longest, idle)
					}
					ended := strings.Count(b.log.String(), "membership in the group ended")
					t.Logf("served %.0f %%, nothing for %v at most; %d memberships ended", 100*float64(served)/looks/groups/partitions,
						time.Duration(longest)*500*time.Millisecond, ended)
					expect.That(t, served == looks*groups*partitions && ended == 0, "in %.1f %% of the time a partition was not served",
						100-100*float64(served)/looks/groups/partitions)
					b.slow.Store(0)
					stop()
					running.Wait()
				})
			})
		}
	}
}

// TestCluster_AnAnswerThatComesLaterIsNotInVain: a caller that gives up earlier leaves the connection, and the next request uses it.
func TestCluster_AnAnswerThatComesLaterIsNotInVain(t *testing.T) {
	for _, p := range protections() {
		synctest.Test(t, func(t *testing.T) {
			b := newBroker(t, append(p.broker, kfake.SeedTopics(1, "t"), kfake.NumBrokers(1))...)
			b.slow.Store(int64(3 * time.Second))
			c := b.cluster(Options{Security: p.client})
			var err error
			for tries := 1; tries == 1 || err != nil; tries++ {
				must.That(t, tries < 20, "%s: no answer within 80 s: %v", p.name, err)
				ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
				_, err = c.Append(ctx, "t", 0, someRecords)
				cancel()
			}
			expect.AtMost(t, b.dials.Load(), 3, "%s: connections, for metadata and an append", p.name)
		})
	}
}

// TestCluster_LearnsATopicThoughItsCallersGiveUp before the answer comes.
func TestCluster_LearnsATopicThoughItsCallersGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(1, "t"), kfake.NumBrokers(1))
		b.slow.Store(int64(3 * time.Second))
		c := b.cluster(Options{})
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			c.Append(ctx, "t", 0, someRecords)
			cancel()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		must.Get(c.Partitions(ctx, "t"))(t)
	})
}

// TestIdempotent_AppendsToASlowBroker within the time that a Sender has for it, and knows the partitions.
func TestIdempotent_AppendsToASlowBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(1, "t"), kfake.NumBrokers(1))
		c := b.cluster(Options{})
		must.Get(c.Append(t.Context(), "t", 0, someRecords))(t)
		b.slow.Store(int64(3 * time.Second))
		time.Sleep(metadataTTL + 3*time.Second)
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
			must.Get(c.Partitions(ctx, "t"))(t)
			must.Get(c.Idempotent(nil)(ctx, "t", 0, []wire.RawRecord{someRecords[0].Raw()}))(t)
			cancel()
			time.Sleep(time.Duration(rand.Int64N(int64(2 * time.Second))))
		}
		began := time.Now()
		for range 10 {
			must.Get(c.Partitions(t.Context(), "t"))(t)
		}
		expect.AtMost(t, time.Since(began), 3*time.Second, "the time to look up a topic in use, ten times")
	})
}

// TestIdempotent_GivesUpWithoutAnAnswer, and says that the records may have been written.
func TestIdempotent_GivesUpWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(1, "t"), kfake.NumBrokers(1))
		c := b.cluster(Options{})
		produce := c.Idempotent(nil)
		must.Get(produce(t.Context(), "t", 0, []wire.RawRecord{someRecords[0].Raw()}))(t)
		b.slow.Store(int64(time.Hour))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		_, err := produce(ctx, "t", 0, []wire.RawRecord{someRecords[0].Raw()})
		expect.Is(t, err, wire.ErrUnanswered, "an append without an answer")
		expect.AtMost(t, time.Since(began), 11*time.Second, "the time until it gave up")
	})
}

// TestSilent_NamesTheBrokersThatDoNotAnswer, whichever of them Options name, and later requests begin with one that does. Ping waits for none of them.
func TestSilent_NamesTheBrokersThatDoNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.Ports(9092, 9093, 9094))
		all := b.ListenAddrs()
		for _, named := range [][]string{all, all[:1], {all[2], silent}, {silent, all[1], all[2]}} {
			b.hung.Store("")
			c := b.cluster(Options{Brokers: named})
			before, err := c.Silent(t.Context())
			expect.That(t, err == nil && slices.Contains(before, silent) == slices.Contains(named, silent) && len(before) <= 1, "%v, %v; named are %v",
				before, err, named)
			b.hung.Store(all[1])
			began := time.Now()
			must.Do(t, c.Ping(t.Context()))
			expect.AtMost(t, time.Since(began), time.Second, "the time of a ping")
			got, err := c.Silent(t.Context())
			expect.That(t, err == nil && slices.Contains(got, all[1]) && len(got) == len(before)+1, "%v, %v; %s does not answer", got, err, all[1])
			expect.AtMost(t, time.Since(began), 3*time.Second, "the time until the silent brokers are known")
			for range 3 {
				began = time.Now()
				must.Get(c.TopicNames(t.Context(), ""))(t)
				expect.AtMost(t, time.Since(began), time.Second, "the time of a request to any broker")
			}
		}
		c := b.cluster(Options{Brokers: []string{silent, all[1]}})
		got, err := c.Silent(t.Context())
		expect.That(t, err != nil && len(got) == 2, "%v, %v; nobody answers", got, err)
	})
}

// TestOnAck_SaysNothingOfABatchThatWasSentTwice, and nothing of a topic without append times.
func TestOnAck_SaysNothingOfABatchThatWasSentTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(1, "t"), kfake.NumBrokers(1))
		var answers []kmsg.ProduceResponseTopicPartition
		b.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
			b.KeepControl()
			res := req.ResponseKind().(*kmsg.ProduceResponse)
			res.Topics = []kmsg.ProduceResponseTopic{{Topic: "t", Partitions: answers[:1]}}
			answers = answers[1:]
			return res, nil, true
		})
		at := time.Now().Add(time.Hour).Truncate(time.Millisecond)
		stamped := kmsg.ProduceResponseTopicPartition{LogAppendTime: at.UnixMilli()}
		var told []time.Time
		c := b.cluster(Options{})
		c.OnAck(func(broker string, at time.Time, _ time.Duration) {
			expect.Equal(t, broker, b.ListenAddrs()[0], "the broker")
			told = append(told, at)
		})
		produce := c.Idempotent(nil)
		for _, test := range []struct {
			what    string
			answers []kmsg.ProduceResponseTopicPartition
			told    []time.Time
		}{
			{"sent once", []kmsg.ProduceResponseTopicPartition{stamped}, []time.Time{at}},
			{"sent twice", []kmsg.ProduceResponseTopicPartition{{ErrorCode: kerr.RequestTimedOut.Code}, stamped}, nil},
			{"without an append time", []kmsg.ProduceResponseTopicPartition{{LogAppendTime: -1}}, nil},
		} {
			told, answers = nil, test.answers
			must.Get(produce(t.Context(), "t", 0, []wire.RawRecord{someRecords[0].Raw()}))(t)
			expect.Same(t, told, test.told, "a batch that was %s", test.what)
		}
	})
}

// TestRead_WaitsForASlowBroker, which itself waits for records before it answers.
func TestRead_WaitsForASlowBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(1, "t"), kfake.NumBrokers(1))
		c := b.cluster(Options{})
		b.slow.Store(int64(3 * time.Second))
		for range 3 {
			must.Get(c.Read(t.Context(), wire.Position{Topic: "t"}))(t)
		}
	})
}

// TestConsume_GoesOnWithoutACoordinator: the topic can be read and written while the partition of the group's commits has no
// leader. So claims go on for as long as brokers say that there is no coordinator.
func TestConsume_GoesOnWithoutACoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(3, "t"), kfake.NumBrokers(1))
		c := b.cluster(Options{})
		var serving atomic.Int32
		var away atomic.Bool // the coordinator
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.Consume(ctx, "g", "t", func(ctx context.Context, claim wire.Claim) {
				serving.Add(1)
				defer serving.Add(-1)
				for retry.Sleep(ctx, time.Minute) { // a loop that wakes late goes on, too
					if err := claim.Confirm(ctx); away.Load() {
						expect.NoError(t, err)
					}
				}
			})
		}()
		time.Sleep(10 * time.Second)
		expect.Equal(t, serving.Load(), 3, "partitions that are served")
		for _, key := range []kmsg.Key{kmsg.FindCoordinator, kmsg.Heartbeat, kmsg.JoinGroup, kmsg.OffsetCommit} {
			b.ControlKey(int16(key), func(req kmsg.Request) (kmsg.Response, error, bool) {
				b.KeepControl()
				switch res := req.ResponseKind().(type) {
				case *kmsg.FindCoordinatorResponse:
					res.ErrorCode = kerr.CoordinatorNotAvailable.Code
					return res, nil, away.Load()
				case *kmsg.HeartbeatResponse:
					res.ErrorCode = kerr.NotCoordinator.Code
					return res, nil, away.Load()
				case *kmsg.JoinGroupResponse:
					res.ErrorCode = kerr.NotCoordinator.Code
					return res, nil, away.Load()
				}
				return nil, nil, false
			})
		}
		away.Store(true)
		time.Sleep(time.Hour)
		expect.Equal(t, serving.Load(), 3, "partitions that are served after an hour without a coordinator")
		away.Store(false)
		time.Sleep(time.Minute)
		expect.Equal(t, serving.Load(), 3, "partitions that are served with a coordinator again")
		b.hung.Store(b.ListenAddrs()[0]) // it reaches nobody
		time.Sleep(DefaultSessionTimeout + requestTimeout)
		expect.Equal(t, serving.Load(), 0, "partitions that are served by a member that reaches nobody")
		b.hung.Store("")
		stop()
		<-ended
	})
}

// TestCheckOffsets_FindsWhatABrokerThatIsDownWouldStop, in Kafka's own topic of commits.
func TestCheckOffsets_FindsWhatABrokerThatIsDownWouldStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.NumBrokers(3), kfake.Ports(9092, 9093, 9094))
		c := b.cluster(Options{})
		check := func(replication int, want ...string) {
			t.Helper()
			time.Sleep(2 * metadataTTL)
			found, err := c.CheckOffsets(t.Context(), replication)
			must.Do(t, err)
			must.That(t, len(found) == len(want), "found %+v, want %q", found, want)
			for i, f := range found {
				expect.That(t, f.Topic == "__consumer_offsets" && strings.Contains(f.What, want[i]) && f.Fix != "" && f.By == (Change{}), "found %+v, want %q", f, want[i])
			}
		}
		check(3) // no group has been there yet
		must.Do(t, c.createTopic(t.Context(), TopicSpec{Name: "__consumer_offsets", Partitions: 5, Replication: 2}))
		check(2)
		check(3, "has 2 replicas, want 3")
		must.Get(c.client.IncrementalAlterConfigs(t.Context(), &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: "__consumer_offsets",
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{{Name: "min.insync.replicas", Value: "2", ConfigOperation: kafka.ConfigOperationSet}},
		}}}))(t)
		check(2, "min.insync.replicas is 2 of 2")
		b.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
			b.KeepControl()
			res := kmsg.NewPtrMetadataResponse()
			res.Version = req.GetVersion()
			for _, asked := range req.(*kmsg.MetadataRequest).Topics {
				topic := kmsg.MetadataResponseTopic{Topic: asked.Topic}
				for p := range int32(5) {
					topic.Partitions = append(topic.Partitions, kmsg.MetadataResponseTopicPartition{Partition: p, Leader: -p % 2, Replicas: []int32{0, 1}})
				}
				res.Topics = append(res.Topics, topic)
			}
			for n := range int32(3) {
				res.Brokers = append(res.Brokers, kmsg.MetadataResponseBroker{NodeID: n, Host: "127.0.0.1", Port: 9092 + n})
			}
			return res, nil, true
		})
		check(1, "2 of 5 partitions have no leader", "min.insync.replicas is 2 of 2")
	})
}

func TestCheckReplicas_NamesTopicsOfWhichReplicasAreNotInSync(t *testing.T) {
	in := kmsg.MetadataResponseTopicPartition{Replicas: []int32{0, 1}, ISR: []int32{1, 0}}
	out := kmsg.MetadataResponseTopicPartition{Replicas: []int32{0, 1}, ISR: []int32{0}}
	topic := func(name string, partitions ...kmsg.MetadataResponseTopicPartition) kmsg.MetadataResponseTopic {
		return kmsg.MetadataResponseTopic{Topic: &name, Partitions: partitions}
	}
	got := outOfSync([]kmsg.MetadataResponseTopic{topic("a", in, in), topic("b", in, out, out), topic("gone")})
	must.That(t, len(got) == 1 && got[0].Topic == "b" && strings.HasPrefix(got[0].What, "2 of 3 partitions"), "%+v", got)
	synctest.Test(t, func(t *testing.T) {
		c := newBroker(t, kfake.NumBrokers(3), kfake.Ports(9092, 9093, 9094)).cluster(Options{})
		must.Do(t, c.createTopic(t.Context(), TopicSpec{Name: "a", Partitions: 2, Replication: 3}))
		found, err := c.CheckReplicas(t.Context(), []TopicSpec{{Name: "a"}, {Name: "missing"}})
		expect.That(t, len(found) == 0 && err == nil, "%+v, %v", found, err)
	})
}
