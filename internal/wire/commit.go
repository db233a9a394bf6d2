package wire

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"
	"strings"
)

// Run is a run of done offsets above a watermark, [First, End).
type Run struct{ First, End int64 }

// MaxCommitBytes bounds the metadata of a commit. By default brokers refuse a commit with more.
const MaxCommitBytes = 4096

// maxRunBytes bounds an encoded list of runs. Of MaxCommitBytes, the log's identity takes up to 40,
// the number of partitions up to 14.
const maxRunBytes = 4000

// Prefixes of the fields of commit metadata.
const (
	runsPrefix       = "r1:" // a list of runs
	logPrefix        = "t1:" // what identifies the log
	partitionsPrefix = "n1:" // a number of partitions
)

// EncodeDone encodes the metadata of a commit of the watermark low: the log that the
// offset belongs to, if it is known, and the runs. left is the number of runs that did
// not fit.
func EncodeDone(log LogID, low int64, runs []Run) (encoded string, left int) {
	encoded, left = EncodeRuns(low, runs)
	if log.Topic == (LogID{}).Topic {
		return encoded, left
	}
	b := binary.AppendUvarint(log.Topic[:], uint64(int64(log.Epoch)+1))
	return strings.TrimSpace(logPrefix + base64.RawStdEncoding.EncodeToString(b) + " " + encoded), left
}

// DecodeLog reads from the metadata of a commit which log the offset belongs to. Metadata
// without a log, such as that of an older version, gives the zero LogID, which accepts
// any log.
func DecodeLog(encoded string) LogID {
	log := LogID{}
	b, err := base64.RawStdEncoding.DecodeString(field(encoded, logPrefix))
	if err != nil || len(b) <= len(log.Topic) {
		return log
	}
	epoch, n := binary.Uvarint(b[copy(log.Topic[:], b):])
	if n <= 0 || epoch > math.MaxInt32+1 {
		return LogID{}
	}
	log.Epoch = int32(int64(epoch) - 1)
	return log
}

// WithPartitions returns the metadata of a commit with the number of partitions that the
// topic had. It replaces the number that the metadata may have had before.
func WithPartitions(encoded string, n int) string {
	number := partitionsPrefix + strconv.Itoa(n)
	if former := field(encoded, partitionsPrefix); former != "" {
		return strings.Replace(encoded, partitionsPrefix+former, number, 1)
	}
	return strings.TrimSpace(number + " " + encoded)
}

// DecodePartitions reads from the metadata of a commit how many partitions the topic had. It
// returns 0 for metadata without that number, such as that of an older version.
func DecodePartitions(encoded string) int {
	n, err := strconv.Atoi(field(encoded, partitionsPrefix))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// field returns the first field of the metadata that begins with the prefix, without the
// prefix, or "".
func field(metadata, prefix string) string {
	for f := range strings.FieldsSeq(metadata) {
		if rest, ok := strings.CutPrefix(f, prefix); ok {
			return rest
		}
	}
	return ""
}

// EncodeRuns encodes runs above the watermark low, in order, for the metadata of a
// commit: base64 of varints, the gap before each run and its length. left is the number
// of runs that did not fit; they may be repeated. Without runs the result is "".
func EncodeRuns(low int64, runs []Run) (encoded string, left int) {
	most := base64.RawStdEncoding.DecodedLen(maxRunBytes - len(runsPrefix)) //mutant:done-list-too-long
	var b []byte
	at := low
	for i, r := range runs {
		next := binary.AppendUvarint(binary.AppendUvarint(b, uint64(r.First-at)), uint64(r.End-r.First))
		if len(next) > most {
			left = len(runs) - i
			break
		}
		b, at = next, r.End
	}
	if len(b) == 0 {
		return "", left
	}
	return runsPrefix + base64.RawStdEncoding.EncodeToString(b), left
}

// DecodeRuns decodes the runs of EncodeRuns from the metadata of a commit of low.
// Metadata of another format, such as that of another program, has no runs.
func DecodeRuns(low int64, encoded string) []Run {
	b, err := base64.RawStdEncoding.DecodeString(field(encoded, runsPrefix))
	if err != nil {
		return nil
	}
	var runs []Run
	for at := low; len(b) > 0; {
		gap, n := binary.Uvarint(b)
		if n <= 0 || gap == 0 || gap > 1<<40 {
			return nil // the offset at the watermark is not done
		}
		length, m := binary.Uvarint(b[n:])
		if m <= 0 || length == 0 || length > 1<<40 {
			return nil
		}
		r := Run{at + int64(gap), at + int64(gap+length)}
		runs, at, b = append(runs, r), r.End, b[n+m:]
	}
	return runs
}
