package kafka

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/createpartitions"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/deletegroups"
	"github.com/segmentio/kafka-go/protocol/deletetopics"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"
	"github.com/segmentio/kafka-go/protocol/describegroups"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/segmentio/kafka-go/protocol/findcoordinator"
	"github.com/segmentio/kafka-go/protocol/incrementalalterconfigs"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
	metadataAPI "github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/protocol/offsetcommit"
	"github.com/segmentio/kafka-go/protocol/offsetfetch"
	"github.com/segmentio/kafka-go/protocol/produce"
)

// transport wraps the client library's transport. Every request of this package goes through
// it. If an answer refuses access to any resource, RoundTrip returns an AccessError.
type transport struct {
	*kafka.Transport
	addr     net.Addr // means any broker
	topology *topology
	connect  *connector
	security Security
	reached  atomic.Bool // a request has been answered

	coordinators coordinators

	lifetime context.Context // of the background functions
	end      context.CancelFunc
	mu       sync.Mutex // guards closed, and orders running.Go before running.Wait
	closed   bool
	running  sync.WaitGroup
}

// background runs a function until the transport is closed. It returns false, and runs
// nothing, if the transport is closed already.
func (t *transport) background(run func(context.Context)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.running.Go(func() { run(t.lifetime) })
	}
	return !t.closed
}

// close ends the background functions and waits for them.
func (t *transport) close() {
	t.end()
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.running.Wait()
}

// RoundTrip sends a request and returns its answer. Metadata is answered by the topology.
func (t *transport) RoundTrip(ctx context.Context, addr net.Addr, req kafka.Request) (res kafka.Response, err error) {
	if about, ok := req.(*metadataAPI.Request); ok {
		res, err = t.topology.describe(ctx, about.TopicNames)
	} else {
		res, err = t.route(ctx, addr, req)
	}
	if err != nil {
		return nil, explainConnection(err, t.security, !t.reached.Load())
	}
	if !t.reached.Load() {
		t.reached.Store(true)
	}
	var missing missingACLs
	eachErrorCode(req, res, func(code int16, name string) {
		t.topology.observe(code, name)
		missing.observe(code, name)
	})
	switch req.(type) {
	case *createtopics.Request, *createpartitions.Request, *deletetopics.Request:
		t.topology.forget()
	}
	if err := missing.explain(req.ApiKey(), t.security.who); err != nil {
		return nil, err
	}
	return res, nil
}

// missingACLs collects the resources that an answer refuses access to.
type missingACLs struct {
	code  kafka.Error
	names []string
}

// observe records an error code and the name of its resource, if the code is a refusal.
func (r *missingACLs) observe(code int16, name string) {
	switch c := kafka.Error(code); c {
	case kafka.TopicAuthorizationFailed, kafka.GroupAuthorizationFailed, kafka.ClusterAuthorizationFailed:
		r.code = c
		if !slices.Contains(r.names, name) {
			r.names = append(r.names, name)
		}
	}
}

// explain returns the AccessError, or nil if nothing was refused.
func (r *missingACLs) explain(request protocol.ApiKey, who func() string) error {
	a, ok := neededACL(request, r.code)
	if !ok {
		return nil
	}
	if a.resource != "Cluster" { // its names are those of brokers
		slices.Sort(r.names)
		a.name = strings.Join(r.names, ", ")
	}
	return denied(who(), a, r.code)
}

// eachErrorCode calls see with every error code of an answer and with the name of the
// resource that the code is about.
func eachErrorCode(req kafka.Request, res kafka.Response, see func(code int16, name string)) {
	switch r := res.(type) {
	case *produce.Response:
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				see(r.Topics[i].Partitions[j].ErrorCode, r.Topics[i].Topic)
			}
		}
	case *idAnswer:
		see(r.code, r.topic)
	case *rawAnswer:
		see(r.code, fetchTopic(req))
	case *listoffsets.Response:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				see(p.ErrorCode, t.Topic)
			}
		}
	case *offsetcommit.Response:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				see(p.ErrorCode, resourceOf(p.ErrorCode, t.Name, req))
			}
		}
	case *offsetfetch.Response:
		see(r.ErrorCode, groupOf(req))
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				see(p.ErrorCode, resourceOf(p.ErrorCode, t.Name, req))
			}
		}
	case *metadataAPI.Response:
		for _, t := range r.Topics {
			see(t.ErrorCode, t.Name)
		}
	default:
		eachAdminCode(req, res, see)
	}
}

// eachAdminCode is eachErrorCode for requests about topic settings, groups and producer ids.
func eachAdminCode(req kafka.Request, res kafka.Response, see func(code int16, name string)) {
	switch r := res.(type) {
	case *initproducerid.Response:
		see(r.ErrorCode, "")
	case *findcoordinator.Response:
		see(r.ErrorCode, groupOf(req))
	case *describegroups.Response:
		for _, g := range r.Groups {
			see(g.ErrorCode, g.GroupID)
		}
	case *describeconfigs.Response:
		for _, c := range r.Resources {
			see(c.ErrorCode, c.ResourceName)
		}
	case *incrementalalterconfigs.Response:
		for _, c := range r.Responses {
			see(c.ErrorCode, c.ResourceName)
		}
	case *createtopics.Response:
		for _, t := range r.Topics {
			see(t.ErrorCode, t.Name)
		}
	case *createpartitions.Response:
		for _, t := range r.Results {
			see(t.ErrorCode, t.Name)
		}
	case *deletetopics.Response:
		for _, t := range r.Responses {
			see(t.ErrorCode, t.Name)
		}
	case *deletegroups.Response:
		for _, g := range r.Responses {
			see(g.ErrorCode, g.GroupID)
		}
	}
}

// resourceOf returns the group's name if the code is about the group, else the topic.
func resourceOf(code int16, topic string, req kafka.Request) string {
	if kafka.Error(code) == kafka.GroupAuthorizationFailed {
		return groupOf(req)
	}
	return topic
}

func groupOf(req kafka.Request) string {
	switch r := req.(type) {
	case *findcoordinator.Request:
		return r.Key
	case interface{ Group() string }:
		return r.Group()
	}
	return ""
}

func fetchTopic(req kafka.Request) string {
	var topics []fetch.RequestTopic
	if r, ok := req.(*rawFetch); ok {
		topics = r.Topics
	}
	if len(topics) == 0 {
		return ""
	}
	return topics[0].Topic
}

// explainJoin explains why joining a group failed. A membership has its own connections,
// which do not go through the transport.
func (c *Cluster) explainJoin(err error, group, topic string) error {
	var code kafka.Error
	if errors.As(err, &code) {
		who := c.opts.Security.who()
		switch code {
		case kafka.GroupAuthorizationFailed:
			return denied(who, access{"Read", "Group", group}, err)
		case kafka.TopicAuthorizationFailed:
			return denied(who, access{"Read", "Topic", topic}, err)
		}
	}
	return explainConnection(err, c.opts.Security, false)
}
