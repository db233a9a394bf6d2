package kafka

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// answerAll answers all requests of a kind.
func (b *broker) answerAll(key kmsg.Key, answer func(kmsg.Request) kmsg.Response) {
	b.ControlKey(int16(key), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.KeepControl()
		res := answer(req)
		return res, nil, res != nil
	})
}

// without makes the broker not offer a kind of requests.
func (b *broker) without(missing kmsg.Key) {
	b.answerAll(kmsg.ApiVersions, func(req kmsg.Request) kmsg.Response {
		res := req.ResponseKind().(*kmsg.ApiVersionsResponse)
		for key := range int16(76) {
			if k := kmsg.RequestForKey(key); k != nil && key != int16(missing) {
				res.ApiKeys = append(res.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: key, MaxVersion: min(k.MaxVersion(), fetchByID)})
			}
		}
		return res
	})
}

// TestPing_RefusesAnOldBroker, with which a recreated topic would not be noticed.
func TestPing_RefusesAnOldBroker(t *testing.T) {
	for version, old := range map[*kversion.Versions]bool{kversion.V3_0_0(): true, kversion.V3_1_0(): false} {
		synctest.Test(t, func(t *testing.T) {
			b := newBroker(t, kfake.MaxVersions(version), kfake.NumBrokers(1))
			err := b.cluster(Options{}).Ping(t.Context())
			expect.That(t, errors.Is(err, errOldBroker) == old && (err == nil) == !old, "%v: %v", version, err)
		})
	}
}

// TestExchange_NamesWhatTheBrokerDoesNotKnow, in place of a connection that the broker closes.
func TestExchange_NamesWhatTheBrokerDoesNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(1, "t"), kfake.NumBrokers(1))
		b.without(kmsg.CreatePartitions)
		c := b.cluster(Options{})
		_, _, err := c.Apply(t.Context(), []TopicSpec{{Name: "t", Partitions: 2, Replication: 1, Retention: time.Hour}})
		expect.That(t, errors.Is(err, errNotOffered) && strings.Contains(err.Error(), "CreatePartitions"), "got %v", err)
	})
}

// TestTopics_WaitsUntilBrokersAgree: right after a topic was deleted, one broker may still list it while another does not know it.
func TestTopics_WaitsUntilBrokersAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(1, "t"))
		times := 0
		b.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
			if times++; times == 3 {
				return nil, nil, false
			}
			b.KeepControl()
			res := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
			r := kmsg.NewDescribeConfigsResponseResource()
			r.ErrorCode, r.ResourceName, r.ResourceType = kerr.UnknownTopicOrPartition.Code, "t", kmsg.ConfigResourceTypeTopic
			res.Resources = append(res.Resources, r)
			return res, nil, true
		})
		states, err := b.cluster(Options{}).Topics(t.Context(), "t")
		expect.That(t, err == nil && states["t"].Exists && times == 3, "%+v, %v, asked %d times; want the topic", states, err, times)
	})
}

// answerMetadataLimit makes each broker answer with its limit, by its id; without one, with a code.
func answerMetadataLimit(b *broker, limits map[string]string, code int16) {
	b.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.KeepControl()
		res := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
		for _, asked := range req.(*kmsg.DescribeConfigsRequest).Resources {
			r := kmsg.NewDescribeConfigsResponseResource()
			r.ResourceName, r.ResourceType, r.ErrorCode = asked.ResourceName, asked.ResourceType, code
			if limit, ok := limits[asked.ResourceName]; ok {
				r.Configs = append(r.Configs, kmsg.DescribeConfigsResponseResourceConfig{Name: asked.ConfigNames[0], Value: &limit})
			}
			res.Resources = append(res.Resources, r)
		}
		return res, nil, true
	})
}

func TestMetadataLimit_IsTheSmallestOfAllBrokers(t *testing.T) {
	for what, row := range map[string]struct {
		limits map[string]string
		code   int16
		want   int
		err    string
	}{
		"one broker has a smaller limit": {map[string]string{"0": "4096", "1": "1000", "2": "8192"}, 0, 1000, ""},
		"the user may not ask":           {nil, kerr.ClusterAuthorizationFailed.Code, 0, "lacks the ACL DescribeConfigs on Cluster;"},
		"a broker has no such setting":   {map[string]string{"0": "4096", "1": "4096"}, 0, 0, "broker 2 does not tell its offset.metadata.max.bytes"},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBroker(t, kfake.NumBrokers(3), kfake.Ports(9092, 9093, 9094))
			answerMetadataLimit(b, row.limits, row.code)
			least, err := b.cluster(Options{}).MetadataLimit(t.Context())
			if least != row.want || (err != nil) != (row.err != "") || err != nil && !strings.Contains(err.Error(), row.err) {
				t.Errorf("%s: %d, %v; want %d, %q", what, least, err, row.want, row.err)
			}
		})
	}
}
