package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// brokerFaults are the errors that a broker may return for each kind of request. A produce request that fails with REQUEST_TIMED_OUT or
// NOT_ENOUGH_REPLICAS_AFTER_APPEND was appended nevertheless.
var brokerFaults = []struct {
	key  kmsg.Key
	errs []*kerr.Error
}{
	{kmsg.Produce, []*kerr.Error{
		kerr.RequestTimedOut, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.NotLeaderForPartition,
		kerr.CorruptMessage, kerr.UnknownTopicOrPartition, kerr.KafkaStorageError, kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.UnknownServerError,
	}},
	{kmsg.Fetch, []*kerr.Error{kerr.NotLeaderForPartition, kerr.UnknownTopicOrPartition, kerr.KafkaStorageError, kerr.UnknownServerError,
		kerr.OffsetNotAvailable}},
	{kmsg.ListOffsets, []*kerr.Error{kerr.NotLeaderForPartition, kerr.LeaderNotAvailable}},
	{kmsg.OffsetCommit, []*kerr.Error{kerr.RebalanceInProgress, kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.CoordinatorLoadInProgress,
		kerr.NotCoordinator, kerr.RequestTimedOut}},
	{kmsg.OffsetFetch, []*kerr.Error{kerr.CoordinatorLoadInProgress, kerr.NotCoordinator}},
	{kmsg.Heartbeat, []*kerr.Error{kerr.RebalanceInProgress, kerr.UnknownMemberID, kerr.NotCoordinator}},
	{kmsg.JoinGroup, []*kerr.Error{kerr.CoordinatorLoadInProgress, kerr.NotCoordinator, kerr.UnknownMemberID}},
	{kmsg.SyncGroup, []*kerr.Error{kerr.RebalanceInProgress, kerr.NotCoordinator}},
	{kmsg.FindCoordinator, []*kerr.Error{kerr.CoordinatorNotAvailable}},
	{kmsg.InitProducerID, []*kerr.Error{kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable}},
	{kmsg.LeaveGroup, []*kerr.Error{kerr.UnknownMemberID, kerr.NotCoordinator}},
	{kmsg.DescribeConfigs, []*kerr.Error{kerr.UnknownServerError, kerr.TopicAuthorizationFailed}},
	{kmsg.ApiVersions, []*kerr.Error{kerr.UnknownServerError, kerr.UnsupportedVersion}},
	{kmsg.Metadata, []*kerr.Error{kerr.LeaderNotAvailable}},
}

// TestSimulation_WhateverTheBrokerAnswersThePromisesAreKept plays random orders while the broker fails random requests, some of which it has executed.
// The name of a failing subtest has its seed, which plays the same again.
func TestSimulation_WhateverTheBrokerAnswersThePromisesAreKept(t *testing.T) {
	t.Parallel()
	for seed := range brokerSeeds.inRing() {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			cfg := testConfig()
			cfg.Buckets = orderclose.Buckets{{Topic: "delay_1s", Length: time.Second}, {Topic: "delay_10s", Length: 10 * time.Second}}
			cfg.Delays = orderclose.Delays{Default: 20 * time.Second, ByCategory: map[string]time.Duration{"flash": 3 * time.Second, "virtual": 10 * time.Second}}
			cfg.Compensator.Period = 2 * time.Minute
			simulate(t, cfg, func(ctx context.Context, r *rig) {
				r.disturbed = true
				r.startAll()
				time.Sleep(5 * time.Second)
				stop, done := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(done)
					r.faultAtRandom(rand.New(rand.NewPCG(uint64(seed), 2)), stop)
				}()
				steps := scenario.Plan(scenario.Spec{Seed: uint64(seed), Orders: 60, Over: time.Minute, SKUs: 20, Categories: []string{"flash", "virtual", "other"}})
				expect.NoError(t, r.shop.Run(ctx, time.Now(), steps))
				close(stop)
				<-done
				time.Sleep(time.Until(r.shop.LastDue().Add(missBound)))
				v := r.check(time.Now())
				expect.That(t, v.ByPath["pipeline"] != 0, "closed %v: the pipeline did nothing", v.ByPath)
			})
		})
	}
}

// faultAtRandom makes the broker fail requests at random, until stop.
func (r *rig) faultAtRandom(random *rand.Rand, stop <-chan struct{}) {
	var faults []*kfake.FaultHandle
	defer func() {
		for _, f := range faults {
			f.Remove()
		}
	}()
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(random.Int64N(int64(2 * time.Second)))):
		}
		f := brokerFaults[random.IntN(len(brokerFaults))]
		faults = append(faults, r.world.Broker.Fault(kfake.Fault{
			Keys: []kmsg.Key{f.key}, Err: f.errs[random.IntN(len(f.errs))], Count: 1 + random.IntN(4), TopLevel: random.IntN(2) == 0,
		}))
	}
}
