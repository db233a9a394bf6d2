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
)

const (
	// describeTopicPartitions lists topics in the order of their names, from a given name
	// on. Brokers have it since Kafka 3.8; the client library does not know it.
	describeTopicPartitions protocol.ApiKey = 75
	// pagePartitions bounds an answer: the first partition of one topic. Only names are
	// wanted, and there are few delay topics.
	pagePartitions = 1
	// listAllEvery is how often an older broker is asked for all topics.
	listAllEvery = 10 * time.Minute
)

// errNoPages says that a broker cannot list topics from a given name on.
var errNoPages = errors.New("the broker does not list topics by their names")

// listed are the names of all topics of a cluster with older brokers.
type listed struct {
	mu    sync.Mutex
	names []string
	at    time.Time
}

// TopicNames lists, by name, the topics with a prefix that we may see. It does not read
// about other topics, of which a cluster may have thousands. If the brokers are older than
// Kafka 3.8 or the prefix is empty, all topics are read, and the answer may be 10 min old.
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

// namesFrom reads pages until there are no more topics with the prefix.
func (c *Cluster) namesFrom(ctx context.Context, prefix string) (names []string, err error) {
	if prefix == "" {
		return nil, errNoPages
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for from := prefix; ; from = names[len(names)-1] + "-" { // no legal character comes before -
		res, err := c.transport.send(ctx, c.client.Addr, &listPage{from: from})
		if err != nil {
			return nil, explainConnection(err, c.opts.Security, false)
		}
		page := res.(*pageOfNames).names
		names = append(names, page...)
		if len(page) == 0 || !strings.HasPrefix(page[len(page)-1], prefix) {
			return names, nil
		}
	}
}

// allNames lists all topics, from memory if that is young enough.
func (c *Cluster) allNames(ctx context.Context) ([]string, error) {
	c.listed.mu.Lock()
	names, at := c.listed.names, c.listed.at
	c.listed.mu.Unlock()
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
	c.listed.mu.Lock()
	defer c.listed.mu.Unlock()
	c.listed.names, c.listed.at = names, time.Now()
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

// listPage asks for topics whose names are from or come after it.
type listPage struct{ from string }

// ApiKey makes it a protocol message. The versions of the key that it is sent by are not
// among those that the library encodes.
func (*listPage) ApiKey() protocol.ApiKey { return protocol.Metadata }

// Required reports that the library does not encode it. Versions lists every request
// that the broker takes.
func (l *listPage) Required(versions map[protocol.ApiKey]int16) bool {
	if _, ok := versions[describeTopicPartitions]; !ok {
		l.from = ""
	}
	return true
}

// RawExchange sends the request, of version 0, and reads the answer.
func (l *listPage) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	if l.from == "" {
		return nil, fmt.Errorf("%w: %w", errNoPages, protocol.ErrNoRecord) // which keeps the connection
	}
	w := newRequest(describeTopicPartitions, 0)
	w.tags()
	w.count(0) // no topics by name: all
	w.int32(pagePartitions)
	w.int8(1) // there is a cursor
	w.string(l.from)
	w.int32(0) // from its first partition on
	w.tags()   // of the cursor
	w.tags()
	body, err := ask(rw, w)
	if err != nil {
		return nil, err
	}
	return parsePage(body)
}

// pageOfNames is the answer to a listPage.
type pageOfNames struct{ names []string }

// ApiKey makes it a protocol message.
func (*pageOfNames) ApiKey() protocol.ApiKey { return protocol.Metadata }

// parsePage reads a DescribeTopicPartitions response of version 0.
func parsePage(body []byte) (*pageOfNames, error) {
	d := cursor{b: body}
	d.tags()  // of the header
	d.skip(4) // throttle time
	page := &pageOfNames{}
	for range d.length() {
		code := int16(d.uint16())
		name := string(d.take(d.length()))
		d.skip(16 + 1) // topic id, whether it is internal
		for range d.length() {
			d.skip(2 + 4 + 4 + 4) // error, partition, leader, epoch
			for range 5 {         // replicas, in sync, eligible leaders, last known ones, offline
				d.skip(4 * d.length())
			}
			d.tags()
		}
		d.skip(4) // authorized operations
		d.tags()
		if d.bad {
			break
		}
		if code != 0 {
			return nil, fmt.Errorf("list topics: %s: %w", name, kafka.Error(code))
		}
		page.names = append(page.names, name)
	}
	if d.bad {
		return nil, fmt.Errorf("list topics: the answer ends early: %x", body[:min(len(body), 64)])
	}
	return page, nil
}
