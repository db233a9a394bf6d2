//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/kafka"
)

// Requests to Kafka that package kafka does not make, with a client that is independent of it.

// requestTime bounds one of these requests.
const requestTime = 10 * time.Second

// ask sends a request with a client of its own, directly to the brokers.
func ask[R kmsg.Response](w *world, req kmsg.Request) (answer R, err error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(w.cluster.direct...))
	if err != nil {
		return answer, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(w.ctx, requestTime)
	defer cancel()
	res, err := client.Request(ctx, req)
	if err != nil {
		return answer, err
	}
	return res.(R), nil
}

// alterConfigs sets a configuration of topics.
func (w *world) alterConfigs(key, value string, topics ...string) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	for _, topic := range topics {
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = key, &value
		r.Configs = append(r.Configs, c)
		req.Resources = append(req.Resources, r)
	}
	res, err := ask[*kmsg.IncrementalAlterConfigsResponse](w, req)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range res.Resources {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
			errs = append(errs, fmt.Errorf("%s=%s of %s: %w", key, value, r.ResourceName, err))
		}
	}
	return errors.Join(errs...)
}

func (w *world) metadata(topics ...string) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, topic := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &topic
		req.Topics = append(req.Topics, t)
	}
	return ask[*kmsg.MetadataResponse](w, req)
}

// partitions returns the replicas of each partition of topics. Topics that do not exist at the
// moment are left out.
func (w *world) partitions(topics ...string) (map[string]map[int32][]int32, error) {
	res, err := w.metadata(topics...)
	if err != nil {
		return nil, err
	}
	all := map[string]map[int32][]int32{}
	for _, t := range res.Topics {
		if t.ErrorCode != 0 {
			continue
		}
		all[*t.Topic] = map[int32][]int32{}
		for _, p := range t.Partitions {
			all[*t.Topic][p.Partition] = p.Replicas
		}
	}
	return all, nil
}

// inSync returns an error if a replica of a topic is not in sync.
func (w *world) inSync(topic string) error {
	res, err := w.metadata(topic)
	if err != nil {
		return err
	}
	for _, t := range res.Topics {
		for _, p := range t.Partitions {
			if len(p.ISR) < len(p.Replicas) {
				return fmt.Errorf("of %s/%d %d replicas of %d are in sync", topic, p.Partition, len(p.ISR), len(p.Replicas))
			}
		}
	}
	return nil
}

// moveLeaders makes the second replica of each partition the first, and elects it.
func (w *world) moveLeaders(e event, topics ...string) error {
	return w.eventually(func() error {
		all, err := w.partitions(topics...)
		if err != nil {
			return err
		}
		alter, elect := kmsg.NewPtrAlterPartitionAssignmentsRequest(), kmsg.NewPtrElectLeadersRequest()
		alter.TimeoutMillis, elect.TimeoutMillis = 8000, 8000
		for topic, partitions := range all {
			at, et := kmsg.NewAlterPartitionAssignmentsRequestTopic(), kmsg.NewElectLeadersRequestTopic()
			at.Topic, et.Topic = topic, topic
			for p, replicas := range partitions {
				ap := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
				ap.Partition, ap.Replicas = p, append(slices.Clone(replicas[1:]), replicas[0])
				at.Partitions, et.Partitions = append(at.Partitions, ap), append(et.Partitions, p)
			}
			alter.Topics, elect.Topics = append(alter.Topics, at), append(elect.Topics, et)
		}
		res, err := ask[*kmsg.AlterPartitionAssignmentsResponse](w, alter)
		if err == nil {
			err = kerr.ErrorForCode(res.ErrorCode)
		}
		if err != nil {
			return err
		}
		w.hold(e)
		// A partition whose new leader is not in sync keeps its old one.
		elected, err := ask[*kmsg.ElectLeadersResponse](w, elect)
		if err == nil {
			err = kerr.ErrorForCode(elected.ErrorCode)
		}
		return err
	})
}

// deleteRecords deletes every record of a topic.
func (w *world) deleteRecords(topic string) error {
	return w.eventually(func() error {
		all, err := w.partitions(topic)
		if err != nil {
			return err
		}
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.TimeoutMillis = 8000
		t := kmsg.NewDeleteRecordsRequestTopic()
		t.Topic = topic
		for p := range all[topic] {
			rp := kmsg.NewDeleteRecordsRequestTopicPartition()
			rp.Partition, rp.Offset = p, -1 // all
			t.Partitions = append(t.Partitions, rp)
		}
		req.Topics = append(req.Topics, t)
		res, err := ask[*kmsg.DeleteRecordsResponse](w, req)
		if err != nil {
			return err
		}
		for _, t := range res.Topics {
			for _, p := range t.Partitions {
				err = errors.Join(err, kerr.ErrorForCode(p.ErrorCode))
			}
		}
		return err
	})
}

// resetCommits sets the commits of a group without members.
func (w *world) resetCommits(group, topic string, at kafka.Moment) error {
	n, err := w.kafka.Partitions(w.ctx, topic)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = group, -1
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = topic
	for p, a := range w.kafka.Offsets(w.ctx, kafka.OffsetQueries(topic, n, at)) {
		if a.Err != nil {
			return a.Err
		}
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset = int32(p), a.Offsets[0]
		t.Partitions = append(t.Partitions, rp)
	}
	req.Topics = append(req.Topics, t)
	res, err := ask[*kmsg.OffsetCommitResponse](w, req)
	if err != nil {
		return err
	}
	for _, t := range res.Topics {
		for _, p := range t.Partitions {
			err = errors.Join(err, kerr.ErrorForCode(p.ErrorCode))
		}
	}
	return err
}

// maxPartitions bounds what addPartition adds.
const maxPartitions = 8

// addPartition adds a partition to each topic.
func (w *world) addPartition(topics ...string) error {
	return w.eventually(func() error {
		all, err := w.partitions(topics...)
		if err != nil {
			return err
		}
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.TimeoutMillis = 8000
		for topic, partitions := range all {
			if len(partitions) < maxPartitions {
				t := kmsg.NewCreatePartitionsRequestTopic()
				t.Topic, t.Count = topic, int32(len(partitions)+1)
				req.Topics = append(req.Topics, t)
			}
		}
		_, err = ask[*kmsg.CreatePartitionsResponse](w, req)
		return err
	})
}

type header struct{ key, value string }

type record struct {
	topic, key, value string
	headers           []header
}

// send appends records to a partition each, and waits until they are acked. If another fault makes
// a broker refuse, it sends all of them again.
func (w *world) send(all []record) error {
	return w.eventually(func() error { return w.sendOnce(all) })
}

func (w *world) sendOnce(all []record) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(w.cluster.direct...), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.RecordDeliveryTimeout(time.Minute))
	if err != nil {
		return err
	}
	defer client.Close()
	records := make([]*kgo.Record, len(all))
	for i, r := range all {
		records[i] = &kgo.Record{Topic: r.topic, Value: []byte(r.value)}
		if r.key != "" {
			records[i].Key = []byte(r.key)
		}
		for _, h := range r.headers {
			records[i].Headers = append(records[i].Headers, kgo.RecordHeader{Key: h.key, Value: []byte(h.value)})
		}
	}
	return client.ProduceSync(w.ctx, records...).FirstErr()
}
