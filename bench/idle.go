package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/orderclose/orderclose/internal/testkit/process"
)

const (
	// foreignTopics is the number of topics of other applications on the cluster,
	// with 12 partitions each.
	foreignTopics = 1000
	// foreignAtOnce is how many of them one request creates or deletes.
	foreignAtOnce = 100
	// foreignLimit is the maximum of metadata that a relay may read on a cluster with
	// foreign topics, as a multiple of what it reads without them.
	foreignLimit = 1.1
)

// benchIdle measures a relay with empty topics, first without and then with foreign
// topics.
func benchIdle(ctx context.Context, p *workspace, pl plan, program string) error {
	dir, err := os.MkdirTemp("", "orderclose-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := p.serve(program, dir)
	if err != nil {
		return err
	}
	proxy, err := newMetadataProxy(p.brokers)
	if err != nil {
		return err
	}
	defer proxy.Close()
	pid, err := listenerOf(p.brokers[0])
	if err != nil {
		return err
	}
	s.brokers = []string{proxy.addr(p.brokers[0])}
	s.counters = func() (int64, process.Used, error) {
		broker, err := process.UsedBy(pid)
		return proxy.metadata.Load(), broker, err
	}
	alone, err := s.watch(ctx, pl.watch)
	if err != nil {
		return fmt.Errorf("without foreign topics: %w", err)
	}
	if err := p.createForeign(ctx); err != nil {
		return err
	}
	if !sleep(ctx, pl.settle) { // the broker is busy with the new topics for a while
		return ctx.Err()
	}
	among, err := s.watch(ctx, pl.watch)
	if err != nil {
		return fmt.Errorf("with foreign topics: %w", err)
	}
	r := idleReport{alone, among}
	if err := r.print(os.Stdout, os.Stderr); err != nil {
		return err
	}
	if among.metadata > foreignLimit*alone.metadata {
		return fmt.Errorf("with %d foreign topics the relay reads %.2f times the metadata, more than %v", foreignTopics, among.metadata/alone.metadata, foreignLimit)
	}
	return nil
}

// createForeign creates the foreign topics.
func (p *workspace) createForeign(ctx context.Context) error {
	prefix := p.name("some_other_teams")
	began := time.Now()
	for from := 0; from < foreignTopics; from += foreignAtOnce {
		var topics []kafka.TopicConfig
		for i := range foreignAtOnce {
			name := fmt.Sprintf("%s_topic_%04d", prefix, from+i)
			p.topics[name] = partitions
			topics = append(topics, kafka.TopicConfig{Topic: name, NumPartitions: partitions, ReplicationFactor: 1})
		}
		client := kafka.Client{Addr: p.client.Addr, Timeout: turnLimit, Transport: p.client.Transport}
		res, err := client.CreateTopics(context.WithoutCancel(ctx), &kafka.CreateTopicsRequest{Topics: topics})
		for _, failed := range errorsOf(res) {
			err = failed
		}
		if err != nil {
			return fmt.Errorf("create foreign topics: %w", err)
		}
	}
	fmt.Fprintf(os.Stderr, "%d foreign topics were made in %v\n", foreignTopics, time.Since(began).Round(time.Second))
	return ctx.Err()
}

func errorsOf(res *kafka.CreateTopicsResponse) (all []error) {
	if res == nil {
		return nil
	}
	for _, err := range res.Errors {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// idleReport is the output of make bench-idle.
type idleReport struct{ alone, among watched }

// idleJSON is its JSON form, for programs.
type idleJSON struct {
	RelayCPU        float64 `json:"relay_cpu_percent"`  // of one core
	BrokerCPU       float64 `json:"broker_cpu_percent"` // of one core
	Metadata        float64 `json:"metadata_bytes_per_minute"`
	MetadataForeign float64 `json:"metadata_bytes_per_minute_foreign"`
}

func (r idleReport) json() idleJSON {
	return idleJSON{round(r.alone.cpuPercent, 2), round(r.alone.brokerPercent, 2), round(r.alone.metadata, 0), round(r.among.metadata, 0)}
}

// print writes the object to out and the table to tables.
func (r idleReport) print(out, tables io.Writer) error {
	w := tabwriter.NewWriter(tables, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\nidle relay on a cluster with\trelay, % of a core\tbroker, % of a core\tmetadata, bytes a minute\t\n")
	fmt.Fprintf(w, "its own topics\t%.2f\t%.2f\t%.0f\t\n", r.alone.cpuPercent, r.alone.brokerPercent, r.alone.metadata)
	fmt.Fprintf(w, "and %d foreign ones\t%.2f\t%.2f\t%.0f\t\n\n", foreignTopics, r.among.cpuPercent, r.among.brokerPercent, r.among.metadata)
	if err := w.Flush(); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(r.json())
}
