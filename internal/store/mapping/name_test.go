package mapping

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestPattern_MatchesItsMonthsOnly(t *testing.T) {
	november := MonthOf(utc("2026-11-30 20:00:00"), time.UTC)
	for pattern, table := range map[string]string{
		"orders_{yyyyMM}":         "orders_202611",
		"shop.orders_{yyyy_MM}":   "shop.orders_2026_11",
		"{yyyyMM}_orders":         "202611_orders",
		"shop.o{yyyyMM}_archived": "shop.o202611_archived",
	} {
		p := must.Get(ParsePattern(pattern))(t)
		expect.Equal(t, p.Table(november), table, "%s in November", pattern)
		_, name := Split(table)
		m, ok := p.Month(name)
		expect.That(t, ok && m == november, "%s of %s: %d, %v; want %d", name, pattern, m, ok, november)
		for _, other := range []string{name + "x", "x" + name, "orders", "orders_202613", "orders_20261", ""} {
			m, ok := p.Month(other)
			expect.That(t, !ok, "%s of %s is month %d", other, pattern, m)
		}
	}
	p, _ := ParsePattern("shop.orders_{yyyy_MM}_x")
	database, like := p.Like()
	expect.That(t, database == "shop" && like == "orders_"+"_______"+"_x", "LIKE %q in %q", like, database)
}

func TestMonth_BeginsByTheClockOfTheZone(t *testing.T) {
	loc, _ := ParseZone("+08:00")
	october := MonthOf(utc("2026-10-31 15:59:59"), loc)
	got := MonthOf(utc("2026-10-31 16:00:00"), loc)
	expect.That(t, got == october+1, "midnight is in month %d, the second before in %d", got, october)
}

func TestKey_ANumberHasOneNotation(t *testing.T) {
	k := Key{Column: "id", Type: Integer}
	for id, want := range map[string]any{
		"17": int64(17), "0": int64(0), "-3": int64(-3), "9223372036854775808": uint64(1 << 63),
		"017": nil, "+17": nil, " 17": nil, "17.0": nil, "": nil, "x": nil, "1e3": nil, "-0": nil,
	} {
		got, ok := k.Arg(id)
		expect.That(t, ok == (want != nil) && (!ok || got == want), "%q: %v, %v; want %v", id, got, ok, want)
	}
	expect.That(t, k.Compare("9", "10") < 0 && k.Compare("-2", "1") < 0 && k.Compare("-10", "-9") < 0 && (Key{}).Compare("9", "10") > 0,
		"ids are not in the order of their index")
}

func TestNames_CannotLeaveTheirQuotes(t *testing.T) {
	for _, name := range []string{"", "a`b", "a b", "a;b", "a?", "a@b", "a'b", "a.b.c", "a\x00b", "😀"} {
		expect.That(t, checkTable(name) != nil, "%q is taken for a table", name)
	}
	got := Quote("shop.订单_表")
	expect.That(t, got == "`shop`.`订单_表`" && checkTable("shop.订单_表") == nil, "quoted %s", got)
}
