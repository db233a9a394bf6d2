package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/kafka/recordbatch"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// fetchMaxWait is how long the broker may wait for the first byte. It bounds one
	// iteration of an idle loop. It delays no record, because a new record is answered at
	// once.
	fetchMaxWait = 2 * time.Second
	// fetchMaxBytes bounds the records of one answer, in bytes, unless the position says otherwise. The
	// broker sends a larger first batch whole.
	fetchMaxBytes = 1 << 20
	// fetchByID is the first version of a fetch in which the broker compares the topic id and the
	// epoch of the log (Kafka 3.1). fetchByName is that of readers that compare neither.
	fetchByID, fetchByName = 13, 11
	// corruptTries is the number of answers with an unreadable batch after which the batch counts as
	// damaged. A single answer may be damaged on the network. Failed fetches do not count.
	corruptTries = 3
)

// Read fetches records of the partition from the position on. If there is none, it waits up
// to two seconds, unless at.NoWait is set, and returns an empty Fetched. If the log does not have the
// offset, Read returns no error but sets Lost, and sets Next to where reading continues.
//
// Read also notices that the log is not the log of the position, even if it has the offset.
// For this the broker compares the topic id and the leader epoch in each fetch. Read reports
// it in Lost and Replaced.
//
// Read sets Corrupt only after three answers with an unreadable batch.
func (c *Cluster) Read(ctx context.Context, at wire.Position) (wire.Fetched, error) {
	if at.Log.Topic == noTopicID { // the present log will do //mutant:only-shorter-noticed
		id, err := c.TopicID(ctx, at.Topic)
		if err != nil {
			return wire.Fetched{}, err
		}
		at.Log = wire.LogID{Topic: id, Epoch: -1}
	}
	pauses := retry.NewBackOff()
	for corrupt := 1; ; corrupt++ {
		f, err := c.read(ctx, at)
		if err != nil || f.Corrupt == nil || corrupt == corruptTries { //mutant:one-damage-counts
			return f, err
		}
		c.opts.Logger.Warn("fetched records are unreadable, will retry", "topic", at.Topic, "partition", at.Partition, "offset", at.Offset, "err", f.Corrupt.Err)
		if f.Free != nil {
			f.Free()
		}
		if !retry.Sleep(ctx, pauses.NextBackOff()) {
			return wire.Fetched{}, ctx.Err()
		}
	}
}

// ReadOnce is Read by one fetch that was answered. While the partition has no leader that answers, it asks again for up to two seconds.
func (c *Cluster) ReadOnce(ctx context.Context, at wire.Position) (f wire.Fetched, err error) {
	err = repeat(ctx, leaderTimeout, leaderMoves, func() (err error) {
		f, err = c.read(ctx, at)
		return err
	})
	return f, err
}

// read is Read by one fetch, of the log of the position.
func (c *Cluster) read(ctx context.Context, at wire.Position) (wire.Fetched, error) {
	raw, buffer, err := c.fetchRaw(ctx, at)
	failed := func(err error) (wire.Fetched, error) {
		return wire.Fetched{}, fmt.Errorf("fetch %s/%d at %d: %w", at.Topic, at.Partition, at.Offset, err)
	}
	switch {
	case errors.Is(err, kafka.OffsetOutOfRange):
		return c.outOfRange(ctx, at)
	case errors.Is(err, kafka.UnknownTopicID), errors.Is(err, kafka.InconsistentTopicID):
		return c.recreated(ctx, at)
	case err != nil:
		return failed(err)
	case raw.DivergingEpoch.EndOffset >= 0: // the log no longer has the last batch that was read
		return truncated(at, raw.DivergingEpoch.Epoch, raw.DivergingEpoch.EndOffset), nil
	}
	f := recordbatch.Split(raw.RecordBatches, at.Offset, raw.HighWatermark, at.MaxRecords, buffer.records[:0])
	if f.Corrupt != nil { //mutant:tail-counts-corrupt
		// The broker reads its high watermark before it reads the log, so an answer may hold good
		// batches above that high watermark.
		_, end, err := c.Bounds(ctx, at.Topic, at.Partition)
		if err != nil {
			return failed(fmt.Errorf("%w; and %w", f.Corrupt.Err, err))
		}
		f = recordbatch.Split(raw.RecordBatches, at.Offset, max(end, raw.HighWatermark), at.MaxRecords, buffer.records[:0])
	}
	// A broker whose segment has a damaged batch length finds no batch behind it, and answers with nothing at once, again and again.
	if n := len(raw.RecordBatches); f.Next == at.Offset && (n > 0 || at.Offset < raw.HighWatermark) { //mutant:silence-is-no-error
		return failed(fmt.Errorf("the broker sent %d bytes without a whole batch, and its log ends at %d", n, raw.HighWatermark))
	}
	f.AtEnd, f.End = f.Next >= raw.HighWatermark, raw.HighWatermark
	f.Log = wire.LogID{Topic: at.Log.Topic, Epoch: max(at.Log.Epoch, f.Log.Epoch)}
	buffer.records = f.Records
	f.Free = func() { c.answers.put(buffer) }
	return f, nil
}

// fetchRaw returns the record batches of a partition from the position on, as the broker
// sent them. The last one may be cut off. They lie in the buffer. The client library would drop their
// headers, and with them the append times.
func (c *Cluster) fetchRaw(ctx context.Context, at wire.Position) (raw kmsg.FetchResponseTopicPartition, _ *answerBuffer, err error) {
	var buffer *answerBuffer // not a result: an answer may come after ctx has ended
	wait, most := fetchMaxWait, cmp.Or(at.MaxBytes, fetchMaxBytes)
	if at.NoWait {
		wait = 0
	}
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = int32(at.Partition), at.Offset, most
	p.LastFetchedEpoch = at.Log.Epoch // if the broker's log of this epoch ends below the offset, the broker says where
	p.LogStartOffset = -1
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(wait.Milliseconds()), 1, most
	req.SessionID = -1
	req.Topics = []kmsg.FetchRequestTopic{{Topic: at.Topic, TopicID: at.Log.Topic, Partitions: []kmsg.FetchRequestTopicPartition{p}}}
	leader, err := c.transport.leader(ctx, at.Topic, at.Partition)
	if err != nil {
		return raw, nil, err
	}
	leader.wait = wait //mutant:fetch-wait-counts
	q := query{transport: c.transport, route: leader, version: fetchByID, room: func(size int) []byte {
		buffer = c.answers.get(size)
		return buffer.body
	}}
	if at.Log.Topic == noTopicID {
		q.version = fetchByName
	}
	res, err := req.RequestWith(ctx, q)
	for err == nil && len(res.Topics) == 0 && res.ErrorCode == 0 && res.ThrottleMillis > 0 { // a quota is used up
		res, err = req.RequestWith(ctx, q)
	}
	if err != nil {
		return raw, nil, err
	}
	if code := fetchError(res); code != 0 {
		return raw, nil, c.transport.judge(about{request: protocol.Fetch, topic: at.Topic}, code)
	}
	return res.Topics[0].Partitions[0], buffer, nil
}

// fetchError returns the error code of an answer about one partition, or of the whole answer.
func fetchError(res *kmsg.FetchResponse) kafka.Error {
	if len(res.Topics) == 1 && len(res.Topics[0].Partitions) == 1 {
		return cmp.Or(kafka.Error(res.Topics[0].Partitions[0].ErrorCode), kafka.Error(res.ErrorCode))
	}
	return cmp.Or(kafka.Error(res.ErrorCode), kafka.Unknown)
}

const (
	// pooledBytes is the size of the smallest answer whose buffer is pooled, in bytes.
	pooledBytes = 64 << 10
	// mostPooled is the capacity of the largest buffer that is pooled, in bytes: an answer of
	// the usual size with its header, or a first batch that is a little larger.
	mostPooled = 2 * fetchMaxBytes
)

// answerBuffer holds the bytes of an answer, and the records that were found in them.
type answerBuffer struct {
	body    []byte
	records []wire.RawRecord
}

// answerPool pools the buffers of answers that are no longer used. Overwriting a used
// megabyte saves clearing and garbage-collecting a new one, which was a fifth of a relay's
// time and half of its memory.
type answerPool struct {
	poison bool // overwrite the bytes that are put back; see Options.PoisonFreedMemory
	pool   sync.Pool
}

// get returns a buffer whose body has size bytes of any content.
func (m *answerPool) get(size int) *answerBuffer {
	if size < pooledBytes {
		return &answerBuffer{body: make([]byte, size)}
	}
	if kept, ok := m.pool.Get().(*answerBuffer); ok && cap(kept.body) >= size {
		kept.body = kept.body[:size]
		return kept
	}
	return &answerBuffer{body: make([]byte, size, max(size, fetchMaxBytes+pooledBytes))}
}

// put takes back a buffer that is no longer used.
func (m *answerPool) put(used *answerBuffer) {
	if m.poison {
		for i := range used.body {
			used.body[i] = 0xdb
		}
	}
	clear(used.records) // release the memory of decompressed batches, which is not in body
	if n := cap(used.body); n >= pooledBytes && n <= mostPooled {
		used.records = used.records[:0]
		m.pool.Put(used)
	}
}

var noTopicID [16]byte

// TopicID returns the id of a topic. A topic that is deleted and recreated gets another id. TopicID
// fails with kafka.UnknownTopicOrPartition if the topic does not exist.
func (c *Cluster) TopicID(ctx context.Context, name string) ([16]byte, error) {
	found, err := c.fresh(ctx, name)
	if err == nil && found.code != 0 {
		err = found.code
	}
	if err != nil {
		return noTopicID, fmt.Errorf("id of topic %s: %w", name, err)
	}
	return found.id, nil
}

// fresh asks about a topic now, whatever is cached.
func (c *Cluster) fresh(ctx context.Context, name string) (topic, error) {
	began := time.Now()
	found, err := c.transport.describe(ctx, func(t topic) bool { return !t.at.Before(began) }, name)
	return found[0], err
}

// outOfRange returns the Fetched for an offset that the log does not have. Reading continues at the start of a log that lost its start or
// was recreated, and at the end of a log that lost its end: the compensator closes the orders of the records that are skipped. A log of
// which nothing was read is read from its start, since nobody knows what happened to it.
func (c *Cluster) outOfRange(ctx context.Context, at wire.Position) (wire.Fetched, error) {
	id, err := c.TopicID(ctx, at.Topic)
	if err != nil {
		return wire.Fetched{}, err
	}
	first, end, err := c.Bounds(ctx, at.Topic, at.Partition)
	if err != nil {
		return wire.Fetched{}, err
	}
	f, same := wire.Fetched{Log: wire.LogID{Topic: id, Epoch: -1}}, id == at.Log.Topic
	switch {
	case same && at.Offset >= first && at.Offset <= end && at.Log.Epoch >= 0: // the broker does not know the epoch: ask again without it
		f.Next = at.Offset
	case same && at.Offset >= first && at.Offset <= end:
		return wire.Fetched{}, fmt.Errorf("fetch %s/%d at %d: %w, but the log goes from %d to %d",
			at.Topic, at.Partition, at.Offset, kafka.OffsetOutOfRange, first, end)
	case same && at.Offset < first:
		f.Next, f.Lost = first, &wire.Range{First: at.Offset, Last: first - 1, Err: fmt.Errorf("the log begins at %d", first)}
	case same && at.Log.Epoch >= 0: //mutant:truncated-from-start
		f.Next, f.Replaced = end, true
		f.Lost = &wire.Range{First: end, Last: at.Offset - 1, Err: fmt.Errorf("the log was truncated, and ends at offset %d now", end)}
	default:
		f.Next, f.Replaced = first, true
		f.Lost = &wire.Range{First: first, Last: at.Offset - 1, Err: fmt.Errorf("the log was replaced, and goes from %d to %d now", first, end)}
	}
	return f, nil
}

// recreated returns the Fetched for a position whose topic was deleted, if a topic of the
// same name exists now. All of the new log is unread.
func (c *Cluster) recreated(ctx context.Context, at wire.Position) (wire.Fetched, error) {
	id, err := c.TopicID(ctx, at.Topic)
	if err != nil {
		return wire.Fetched{}, err
	}
	if id == at.Log.Topic { // brokers learn of a new topic one after the other
		return wire.Fetched{}, fmt.Errorf("fetch %s/%d at %d: the broker does not know the topic yet", at.Topic, at.Partition, at.Offset)
	}
	first, _, err := c.Bounds(ctx, at.Topic, at.Partition)
	if err != nil {
		return wire.Fetched{}, err
	}
	lost := wire.Range{First: first, Last: at.Offset - 1, Err: errors.New("the topic was deleted and recreated")}
	return wire.Fetched{Next: first, Lost: &lost, Replaced: true, Log: wire.LogID{Topic: id, Epoch: -1}}, nil
}

// truncated returns the Fetched for a position whose log lost its end, as in an unclean
// leader election. The log has the epoch only up to end. From end on the offsets mean other
// records. After two such elections in a row end may be too high by what the first one lost.
func truncated(at wire.Position, epoch int32, end int64) wire.Fetched {
	lost := wire.Range{First: end, Last: max(at.Offset-1, end), Err: fmt.Errorf("the log was truncated: records read before are valid up to offset %d only", end)}
	return wire.Fetched{Next: end, Lost: &lost, Replaced: true, Log: wire.LogID{Topic: at.Log.Topic, Epoch: epoch}}
}
