package partition

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"strings"

	"orderclose"
)

// Run is a run of offsets, [First, End), that are done above a watermark.
type Run struct{ First, End int64 }

// maxRuns bounds an encoded run list: brokers refuse a commit whose metadata is
// longer than 4,096 bytes, all of it. The log's identity takes up to 40 beside it.
const maxRuns = 4000

// runsPrefix marks commit metadata as a run list of this form.
const runsPrefix = "r1:"

// logPrefix marks the field of commit metadata that identifies the log.
const logPrefix = "t1:"

// EncodeDone writes what stands beside a commit of the watermark low: the log that the
// offset is of, if it is known, and the runs, as EncodeRuns does.
func EncodeDone(log orderclose.LogID, low int64, runs []Run) (encoded string, left int) {
	encoded, left = EncodeRuns(low, runs)
	if log.Topic == (orderclose.LogID{}).Topic {
		return encoded, left
	}
	b := binary.AppendUvarint(log.Topic[:], uint64(int64(log.Epoch)+1))
	return strings.TrimSpace(logPrefix + base64.RawStdEncoding.EncodeToString(b) + " " + encoded), left
}

// DecodeLog reads from the metadata of a commit which log the offset is of. Metadata that
// does not say it, such as that of an older version, is of whatever log there is.
func DecodeLog(encoded string) orderclose.LogID {
	log := orderclose.LogID{}
	b, err := base64.RawStdEncoding.DecodeString(field(encoded, logPrefix))
	if err != nil || len(b) <= len(log.Topic) {
		return log
	}
	epoch, n := binary.Uvarint(b[copy(log.Topic[:], b):])
	if n <= 0 || epoch > math.MaxInt32+1 {
		return orderclose.LogID{}
	}
	log.Epoch = int32(int64(epoch) - 1)
	return log
}

// field returns the rest of the first field of the metadata that begins with the prefix,
// or "".
func field(metadata, prefix string) string {
	for f := range strings.FieldsSeq(metadata) {
		if rest, ok := strings.CutPrefix(f, prefix); ok {
			return rest
		}
	}
	return ""
}

// EncodeRuns writes runs above the watermark low, in order, for the metadata of a
// commit: base64 of varints, the gap before each run and its length. What does
// not fit is left out, and may then be repeated. Nothing to tell is "".
func EncodeRuns(low int64, runs []Run) (encoded string, left int) {
	most := base64.RawStdEncoding.DecodedLen(maxRuns - len(runsPrefix))
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

// DecodeRuns reads what EncodeRuns wrote beside a commit of low. Metadata of any
// other form, such as another program's, tells nothing.
func DecodeRuns(low int64, encoded string) []Run {
	b, err := base64.RawStdEncoding.DecodeString(field(encoded, runsPrefix))
	if err != nil {
		return nil
	}
	var runs []Run
	for at := low; len(b) > 0; {
		gap, n := binary.Uvarint(b)
		if n <= 0 || gap == 0 || gap > 1<<40 {
			return nil // at the watermark itself stands what is not done
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

// CountRuns is how many offsets the runs hold.
func CountRuns(runs []Run) (n int64) {
	for _, r := range runs {
		n += r.End - r.First
	}
	return n
}
