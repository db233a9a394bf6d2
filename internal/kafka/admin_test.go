package kafka

import (
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestTopics_WaitsUntilBrokersAgree: right after a topic was deleted, one broker may still
// list it while another does not know it.
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
		if err != nil || !states["t"].Exists || times != 3 {
			t.Errorf("%+v, %v, asked %d times; want the topic", states, err, times)
		}
	})
}
