package wire_test

import (
	"testing"

	"github.com/orderclose/orderclose/internal/wire"
)

func BenchmarkDecode(b *testing.B) {
	m := whole(b)
	for name, decode := range map[string]func() (wire.Record, error){"whole": m.Decode, "without attributes": m.DecodeWithoutAttributes} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decode(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
