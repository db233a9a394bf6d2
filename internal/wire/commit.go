package wire

import (
	"encoding/base64"
	"encoding/binary"
	"strings"
)

// Run is a run of done offsets above a watermark, [First, End).
type Run struct{ First, End int64 }

// MaxCommitBytes bounds the metadata of a commit. By default brokers refuse a commit with more.
const MaxCommitBytes = 4096

// maxRunBytes bounds an encoded list of runs.
const maxRunBytes = 4000

// runsPrefix begins a list of runs in commit metadata.
const runsPrefix = "r1:"

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
	text, ok := strings.CutPrefix(encoded, runsPrefix)
	b, err := base64.RawStdEncoding.DecodeString(text)
	if !ok || err != nil {
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
