package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	metadataAPI "github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/orderclose/orderclose/internal/kafka/recordbatch"
)

const (
	// describeTopicPartitions lists topics in the order of their names, from a given name
	// on. Brokers have it since Kafka 3.8. The client library does not know it.
	describeTopicPartitions protocol.ApiKey = 75
	// pagePartitions bounds the number of partitions in an answer, so that each page has one
	// topic. Only the names are used, and there are few delay topics.
	pagePartitions = 1
	// listAllEvery is how often an older broker is asked for all topics.
	listAllEvery = 10 * time.Minute
)

// errNoPages means that a broker cannot list topics from a given name on.
var errNoPages = errors.New("the broker does not list topics by their names")

// namesCache caches the names of all topics of a cluster with older brokers.
type namesCache struct {
	mu    sync.Mutex
	names []string
	at    time.Time
}

// TopicNames returns, in order, the names of the topics with a prefix that this user may see. It
// does not request the metadata of other topics, of which a cluster may have thousands. If
// the brokers are older than Kafka 3.8 or the prefix is empty, it reads the metadata of all
// topics, and the answer may be 10 minutes old.
func (c *Cluster) TopicNames(ctx context.Context, prefix string) ([]string, error) {
	names, err := c.namesFrom(ctx, prefix)
	if errors.Is(err, errNoPages) {
		names, err = c.allNames(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) }), nil
}

// namesFrom reads pages until a page has no topic with the prefix.
func (c *Cluster) namesFrom(ctx context.Context, prefix string) (names []string, err error) {
	if prefix == "" {
		return nil, errNoPages
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for from := prefix; ; from = names[len(names)-1] + "-" { // no character of topic names sorts before -
		res, err := c.transport.send(ctx, c.client.Addr, &pageRequest{from: from})
		if err != nil {
			return nil, explainConnection(err, c.opts.Security, false)
		}
		page := res.(*pageAnswer).names
		names = append(names, page...)
		if len(page) == 0 || !strings.HasPrefix(page[len(page)-1], prefix) {
			return names, nil
		}
	}
}

// allNames returns the names of all topics, from the cache if it is younger than
// listAllEvery.
func (c *Cluster) allNames(ctx context.Context) ([]string, error) {
	c.cachedNames.mu.Lock()
	names, at := c.cachedNames.names, c.cachedNames.at
	c.cachedNames.mu.Unlock()
	if !at.IsZero() && time.Since(at) < listAllEvery {
		return slices.Clone(names), nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	res, err := c.transport.askTopics(ctx, nil)
	if err != nil {
		return nil, explainConnection(err, c.opts.Security, false)
	}
	names = namesOf(res)
	c.cachedNames.mu.Lock()
	defer c.cachedNames.mu.Unlock()
	c.cachedNames.names, c.cachedNames.at = names, time.Now()
	return slices.Clone(names), nil
}

func namesOf(res *metadataAPI.Response) (names []string) {
	for _, t := range res.Topics {
		if t.ErrorCode == 0 && len(t.Partitions) > 0 {
			names = append(names, t.Name)
		}
	}
	slices.Sort(names)
	return names
}

// pageRequest asks for the topics whose names are not less than from.
type pageRequest struct{ from string }

// ApiKey implements protocol.Message. It returns a key that the library knows, because the
// library does not know describeTopicPartitions.
func (*pageRequest) ApiKey() protocol.ApiKey { return protocol.Metadata }

// Required implements protocol.RawExchanger. versions has the requests that the broker
// accepts. If the broker has no describeTopicPartitions, Required empties from, and
// RawExchange fails with errNoPages.
func (l *pageRequest) Required(versions map[protocol.ApiKey]int16) bool {
	if _, ok := versions[describeTopicPartitions]; !ok {
		l.from = ""
	}
	return true
}

// RawExchange sends the request, of version 0, and reads the answer.
func (l *pageRequest) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	if l.from == "" {
		return nil, fmt.Errorf("%w: %w", errNoPages, protocol.ErrNoRecord) // ErrNoRecord makes the library keep the connection
	}
	w := newRequest(describeTopicPartitions, 0)
	w.tags()
	w.count(0) // no names: all topics
	w.int32(pagePartitions)
	w.int8(1) // a cursor follows
	w.string(l.from)
	w.int32(0) // the first partition to return
	w.tags()   // of the cursor
	w.tags()
	body, err := roundTrip(rw, w)
	if err != nil {
		return nil, err
	}
	return parsePage(body)
}

// pageAnswer is the answer to a pageRequest.
type pageAnswer struct{ names []string }

// ApiKey implements protocol.Message.
func (*pageAnswer) ApiKey() protocol.ApiKey { return protocol.Metadata }

// parsePage reads a DescribeTopicPartitions response of version 0.
func parsePage(body []byte) (*pageAnswer, error) {
	d := recordbatch.Cursor{Rest: body}
	d.SkipTags() // of the header
	d.Skip(4)    // throttle time
	page := &pageAnswer{}
	for range d.Length() {
		code := int16(d.Uint16())
		name := string(d.Take(d.Length()))
		d.Skip(16 + 1) // topic id, is internal
		for range d.Length() {
			d.Skip(2 + 4 + 4 + 4) // error, partition, leader, epoch
			for range 5 {         // replicas, in-sync, eligible leaders, last known ELR, offline
				d.Skip(4 * d.Length())
			}
			d.SkipTags()
		}
		d.Skip(4) // authorized operations
		d.SkipTags()
		if d.Bad {
			break
		}
		if code != 0 {
			return nil, fmt.Errorf("list topics: %s: %w", name, kafka.Error(code))
		}
		page.names = append(page.names, name)
	}
	if d.Bad {
		return nil, fmt.Errorf("list topics: the answer ends early: %x", body[:min(len(body), 64)])
	}
	return page, nil
}
