package postgres

import (
	"reflect"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

func TestTranslate(t *testing.T) {
	for query, want := range map[string]string{
		"SELECT `a`.`b` FROM `c` WHERE d IN (?,?) AND e = ?":      `SELECT "a"."b" FROM "c" WHERE d IN ($1,$2) AND e = $3`,
		"SELECT 'it''s ? `x`', \"a?`\" FROM t WHERE a = ?":        "SELECT 'it''s ? `x`', \"a?`\" FROM t WHERE a = $1",
		"SELECT 1 -- what? `this`\nFROM `t` WHERE a - ? > b -- ?": "SELECT 1 -- what? `this`\nFROM \"t\" WHERE a - $1 > b -- ?",
		"SELECT $1": "SELECT $1",
	} {
		got := Translate(query)
		expect.That(t, got == want, "%s\n got %s\nwant %s", query, got, want)
	}
}

func TestTranslated_GivesLargeNumbersTheirType(t *testing.T) {
	for _, query := range []string{"a IN (?, ?) AND b > ? AND c = '$1' OR $$", "a IN ($1, $2) AND b > $3 AND c = '$1' OR $$"} {
		got := translated(query, []any{int64(1 << 31), int64(-1 << 31), "3000000000"}, plain)
		want := "a IN ($1::bigint, $2) AND b > $3 AND c = '$1' OR $$"
		expect.That(t, got == want, "%v", got)
	}
}

func TestRows_HasAnArrayForEachColumnWithSeveralValues(t *testing.T) {
	type path string
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC)
	list, args := Rows(4, []any{path("a"), "x", int64(1), at, path(`b"{},\'`), "x", int64(-2), at.Add(time.Millisecond)})
	if want := "SELECT c0, CAST(? AS text), c2, c3 FROM unnest(CAST(? AS text[]), CAST(? AS bigint[]), CAST(? AS timestamptz[])) AS v (c0, c2, c3)"; list != want {
		t.Error(list)
	}
	const first, second = "2026-01-02T03:04:05.006Z", "2026-01-02T03:04:05.007Z"
	if want := []any{"x", []string{"a", `b"{},\'`}, []string{"1", "-2"}, []string{first, second}}; !reflect.DeepEqual(args, want) {
		t.Errorf("%q", args)
	}
	list, args = Rows(2, []any{path("a"), at, path("a"), at})
	if list != "SELECT c0, CAST(? AS timestamptz) FROM unnest(CAST(? AS text[])) AS v (c0)" || !reflect.DeepEqual(args, []any{first, []string{"a", "a"}}) {
		t.Errorf("%s %q", list, args)
	}
}
