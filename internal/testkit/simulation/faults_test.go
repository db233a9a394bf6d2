package simulation

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
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
