package intake

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// FuzzChange reads change records of any bytes, in each format and with each type of id. An order that is scheduled has an id that
// an order may have, and times that a record can have.
func FuzzChange(f *testing.F) {
	for n, value := range []string{
		`{"op":"c","source":{"db":"shop","table":"orders"},"after":{"id":"1","status":0,"expire_at":1772366700000,"category":"x","created_at":1}}`,
		`{"database":"shop","table":"orders","type":"INSERT","isDdl":false,"data":[{"id":"1","status":"0","expire_at":"2026-03-01 ` +
			`12:00:00.000"}],"old":[{"status":"1"}]}`,
		`{"database":"shop","table":"orders","type":"update","data":{"id":1,"status":0,"expire_at":"2026-03-01 12:00:00"},"old":{"status":1}}`,
		`{"schema":{},"payload":{"op":"u","before":null,"after":{"id":"AAAAAAAAAAAAAAAAAAAAAA==","status":0,"expire_at":"infinity"},` +
			`"source":{"schema":"public","table":"orders"}}}`,
		`{"id":"-1","status":0,"expire_at":9223372036825200,"__deleted":"false"}`,
	} {
		f.Add(uint8(n), []byte(value))
	}
	var readers []rowReader
	for _, key := range []mapping.KeyType{mapping.Text, mapping.Integer, mapping.UUIDBinary, mapping.UUIDSwapped} {
		for _, format := range []Format{Debezium, Canal, Maxwell} {
			m := *mapping.Reference()
			m.ID.Type = key
			readers = append(readers, must.Get(newRowReader(Options{Format: format, Orders: &m, LeaveOverdue: 1 << 62, Delays: func() orderclose.Delays {
				return orderclose.Delays{}
			}}))(f))
		}
	}
	now := time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, n uint8, value []byte) {
		r := readers[int(n)%len(readers)]
		_, changes, _, err := readChange(r.format, value)
		for _, c := range changes {
			o, is, wrong := r.decide(c, now, now)
			if err != nil || wrong != nil || is != scheduled {
				continue
			}
			must.Do(t, orderclose.ValidateID(o.ID))
			must.That(t, o.Due.Year() <= 9999 && o.CreatedAt.Year() >= 0 && o.CreatedAt.Year() <= 9999, "due %v, created %v", o.Due, o.CreatedAt)
		}
	})
}
