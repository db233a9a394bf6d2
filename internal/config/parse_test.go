package config_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

const (
	hintNoBucket = "list the lengths of the delay topics, such as buckets: [10s, 1m, 5m, 30m, 2h, 12h]"
	hintDuration = "write a number and a unit, such as 10s, 5m, 2h or 30d"
	hintLetters  = "use a-z, A-Z, 0-9, dot, underscore and hyphen only"
	hintYAML     = "save the file as UTF-8, and check indentation without tabs, colons, quotes and brackets around this line"
	hintValue    = "write text in quotes or a whole number, each value once"
	hintMatch    = "write match: {category: virtual}, or match: {} for every order"
	hintGrace    = "shorten it: the customer sees the deadline this long before the close"
	hintRemind   = "shorten it: a reminder comes this long before the deadline that the customer sees"
	hintShadow   = "put this rule before it, or remove it"
)

// numbers returns the list 1, 2, … n.
func numbers(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = strconv.Itoa(i + 1)
	}
	return strings.Join(all, ", ")
}

// refusals are wrong files with all the errors that are expected for them.
var refusals = []struct {
	name string
	file string
	want []string
}{
	{"empty", "", []string{"t:1:1: no bucket; " + hintNoBucket}},
	{"only a comment", "# later\n", []string{"t:1:1: no bucket; " + hintNoBucket}},
	{"only a document mark", "---\n", []string{"t:1:1: no bucket; " + hintNoBucket}},
	{"buckets without a value", "buckets:\n", []string{"t:1:9: no bucket; " + hintNoBucket}},
	{"buckets without an entry", "buckets: []\n", []string{"t:1:10: no bucket; " + hintNoBucket}},
	{"everything but buckets", "\npartitions: 12\n", []string{"t:2:1: no bucket; " + hintNoBucket}},
	{"two buckets alike", "buckets:\n- 1m\n- 5m\n- 60s\n- 1m0s\n", []string{
		"t:4:3: buckets[2]: 1m and 60s are the same length; remove one",
		"t:5:3: buckets[3]: 1m and 1m0s are the same length; remove one",
	}},
	{"a bucket that is too short", "buckets: [500ms, 1m]", []string{"t:1:11: buckets[0]: 500ms is shorter than 1s; make it longer or remove it"}},
	{"buckets that are not durations", "buckets: [5000s, 0s, -1m, 30, 1x, '', ~, [1m], {a: 1m}, 1500us]", []string{
		`t:1:18: buckets[1]: "0s" is not positive; ` + hintDuration,
		`t:1:22: buckets[2]: "-1m" is not positive; ` + hintDuration,
		`t:1:27: buckets[3]: "30" has no unit; ` + hintDuration,
		`t:1:31: buckets[4]: "1x" is not a duration; ` + hintDuration,
		`t:1:35: buckets[5]: "" is not a duration; ` + hintDuration,
		"t:1:39: buckets[6]: has no value; " + hintDuration + ", or remove the key",
		"t:1:42: buckets[7]: want a duration, found a list; " + hintDuration,
		"t:1:48: buckets[8]: want a duration, found keys with values; " + hintDuration,
		`t:1:57: buckets[9]: "1500us" is not a whole number of milliseconds; ` + hintDuration,
	}},
	{"buckets that are not a list", "buckets: 1m", []string{`t:1:10: buckets: want a list, found "1m"; write it as [10s, 1m, 5m]`}},
	{"a bucket above the maximum", "buckets: [10s, 12h]\ndelays: {max: 6h}", []string{
		"t:1:16: buckets[1]: 12h is longer than delays.max, 6h: nothing would wait there; raise delays.max, or remove the bucket",
	}},

	{"a list instead of a file", "- 1m\n", []string{"t:1:1: want keys with values, found a list; write each as key: value, on a line of its own"}},
	{"a word instead of a file", "hello\n", []string{`t:1:1: want keys with values, found "hello"; write each as key: value, on a line of its own`}},
	{"sections of the wrong type", "buckets: [1m]\ntopics: [a]\ndelays: 5m\n", []string{
		"t:2:9: topics: want keys with values, found a list; write each as key: value, on a line of its own",
		`t:3:9: delays: want keys with values, found "5m"; write each as key: value, on a line of its own`,
	}},
	{"unknown keys", "Buckets: [1m]\nbuckets: [1m]\nparttions: 3\ndelays: {categoris: {a: 1m}, foo: 1}\nzzz: 1\n", []string{
		`t:1:1: unknown key "Buckets"; did you mean buckets?`,
		`t:3:1: unknown key "parttions"; did you mean partitions?`,
		`t:4:10: delays: unknown key "categoris"; did you mean categories?`,
		`t:4:30: delays: unknown key "foo"; known here: categories, default, max, rules`,
		`t:5:1: unknown key "zzz"; known here: accept, buckets, closer, compensator, delays, kafka, orders, ` +
			`partitions, replication, sync, topics, webhook`,
	}},
	{"keys with their sections before them", "buckets: [1m]\n'delays.max': 1d\ndelays: {'max.max': 1d}\n", []string{
		`t:2:1: unknown key "delays.max"; known here: accept, buckets, closer, compensator, delays, kafka, orders, ` +
			`partitions, replication, sync, topics, webhook`,
		`t:3:10: delays: unknown key "max.max"; known here: categories, default, max, rules`,
	}},
	{"buckets, misspelt", "partitions: 3\nbukets: [1m]\n", []string{`t:2:1: unknown key "bukets"; did you mean buckets?`}},
	{"a maximum, misspelt", "buckets: [1m]\ndelays: {maks: 90d, default: 60d}\n", []string{`t:2:10: delays: unknown key "maks"; did you mean max?`}},
	{"keys given twice", "buckets: [1m]\nbuckets: [2m]\ndelays:\n  categories:\n    virtual: 5m\n    'virtual': 6m\n", []string{
		`t:2:1: key "buckets" is given twice, first on line 1; remove one`,
		`t:6:5: delays.categories: key "virtual" is given twice, first on line 5; remove one`,
	}},
	{"merge keys", "buckets: [1m]\ndelays: {categories: &c {a: 5m}}\ncompensator: {<<: *c}", []string{
		"t:3:15: compensator: merge keys are not supported; write the keys out",
	}},
	{"an alias to a section around it", "buckets: [1m]\ndelays: &d {categories: *d}", []string{
		"t:2:25: delays.categories.categories: want a duration, found keys with values; " + hintDuration,
	}},

	{"delays above the maximum", "buckets: [1m]\ndelays:\n  default: 40d\n  categories: {gold: 31d, iron: 30d}\n", []string{
		"t:3:12: delays.default: 40d is longer than delays.max, 30d; shorten it or raise delays.max",
		"t:4:22: delays.categories.gold: 31d is longer than delays.max, 30d; shorten it or raise delays.max",
	}},
	{"a maximum above the limit", "buckets: [1m]\ndelays: {max: 3661d, default: 9999d}\n", []string{
		"t:2:15: delays.max: 3661d is longer than any order may wait, 3660d; shorten it",
	}},
	{"a maximum below the default", "buckets: [1m]\ndelays: {max: 10m}\n", []string{
		"t:2:15: delays.max: 10m is shorter than delays.default, 30m; raise it or set delays.default",
	}},
	{"an invalid maximum: nothing is compared with it", "buckets: [1m]\ndelays: {max: half a year, default: 99d}\n", []string{
		`t:2:15: delays.max: "half a year" is not a duration; ` + hintDuration,
	}},
	{"a word", "buckets: [1m]\nsync: often\n", []string{`t:2:7: sync: "often" is neither always nor never; write always or never`}},
	{"rules that are not rules", "buckets: [1m]\ndelays:\n  rules:\n  - 5m\n  - {match: {}, afer: 5m}\n  - {match: {categry: a}, after: 5m}\n" +
		"  - {match: {attributes: {pay: [1.5, true, '', 07, [x], a, a]}}, after: maybe}\n  - {match: {attributes: {pay: []}}, remind: 5m}\n", []string{
		`t:4:5: delays.rules[0]: want keys with values, found "5m"; write each as key: value, on a line of its own`,
		`t:5:17: delays.rules[1]: unknown key "afer"; did you mean after?`,
		`t:6:14: delays.rules[2].match: unknown key "categry"; did you mean category?`,
		`t:7:33: delays.rules[3].match.attributes.pay[0]: "1.5" is neither text nor a whole number; ` + hintValue,
		`t:7:38: delays.rules[3].match.attributes.pay[1]: "true" is neither text nor a whole number; ` + hintValue,
		"t:7:44: delays.rules[3].match.attributes.pay[2]: the value is empty; " + hintValue,
		`t:7:48: delays.rules[3].match.attributes.pay[3]: "07" is neither text nor a whole number; ` + hintValue,
		"t:7:52: delays.rules[3].match.attributes.pay[4]: want a value, found a list; " + hintValue,
		`t:7:60: delays.rules[3].match.attributes.pay[6]: "a" is listed twice; ` + hintValue,
		`t:7:73: delays.rules[3].after: "maybe" is not a duration; ` + hintDuration,
		"t:8:32: delays.rules[4].match.attributes.pay: lists no value; list one, or remove the key",
		`t:8:46: delays.rules[4].remind: want a list, found "5m"; write it as [10m, 2m]`,
	}},
	{"rules without a condition", "buckets: [1m]\ndelays:\n  rules:\n  - after: 5m\n  - {match: , after: 5m}\n  - {match: {attributes: }, after: 5m}\n" +
		"  - {match: {attributes: {}}, after: 5m}\n", []string{
		"t:4:5: delays.rules[0].match: is missing; " + hintMatch,
		"t:5:13: delays.rules[1].match: has no condition; " + hintMatch,
		"t:6:13: delays.rules[2].match: has no condition; " + hintMatch,
		"t:7:13: delays.rules[3].match: has no condition; " + hintMatch,
	}},
	{"rules that contradict themselves", "buckets: [1m]\ndelays:\n  default: 1h\n  max: 2h\n  categories: {a: 10m, b: 30m}\n  rules:\n" +
		"  - {match: {attributes: {n: 1}}, after: never, grace: 5m}\n" +
		"  - {match: {attributes: {n: 3}}, remind: [5m], after: never}\n" +
		"  - {match: {attributes: {n: 5}}}\n" +
		"  - {match: {attributes: {n: 6}}, after: 3h}\n" +
		"  - {match: {attributes: {n: 7}}, after: 999ms}\n" +
		"  - {match: {attributes: {n: 8}}, after: 5m, grace: 5m}\n" +
		"  - {match: {attributes: {n: 9}}, grace: 10m}\n" +
		"  - {match: {category: b, attributes: {n: 10}}, grace: 30m}\n" +
		"  - {match: {category: a, attributes: {}}, after: 5m, grace: 1m, remind: [1m, 4m]}\n" +
		"  - {match: {category: a}, remind: [11m, 9m, 10m]}\n" +
		"  - {match: {category: b}, remind: [9m, 9m]}\n" +
		"  - {match: {}, remind: [1s, 2s, 3s, 4s, 5s, 6s, 7s, 8s, 9s, 10s, 11s]}\n", []string{
		"t:7:56: delays.rules[0].grace: an order that is never closed has no deadline; remove grace, or write another after",
		"t:8:43: delays.rules[1].remind: an order that is never closed has no deadline; remove remind, or write another after",
		"t:9:5: delays.rules[2]: the rule changes nothing; add after, grace or remind",
		"t:10:42: delays.rules[3].after: 3h is longer than delays.max, 2h; shorten it or raise delays.max",
		"t:11:42: delays.rules[4].after: 999ms is shorter than 1s: an order would be closed before its customer has seen it; write 1s or more",
		"t:12:53: delays.rules[5].grace: 5m is not shorter than delays.rules[5].after, 5m; " + hintGrace,
		"t:13:42: delays.rules[6].grace: 10m is not shorter than delays.categories.a, 10m; " + hintGrace,
		"t:14:56: delays.rules[7].grace: 30m is not shorter than delays.categories.b, 30m; " + hintGrace,
		"t:15:79: delays.rules[8].remind[1]: 4m is not shorter than delays.rules[8].after, 5m, without the grace of 1m; " + hintRemind,
		"t:16:37: delays.rules[9].remind[0]: 11m is not shorter than delays.categories.a, 10m; " + hintRemind,
		"t:16:46: delays.rules[9].remind[2]: 10m is not shorter than delays.categories.a, 10m; " + hintRemind,
		"t:17:41: delays.rules[10].remind[1]: 9m is listed twice; remove one",
		"t:18:25: delays.rules[11].remind: 11 reminders, at most 10; remove some",
	}},
	{"reminders by attributes that no row has", "buckets: [1m]\ndelays:\n  rules:\n" +
		"  - {match: {attributes: {pay: bank}}, after: never}\n" +
		"  - {match: {attributes: {pay: card}}, after: 5m}\n" +
		"  - {match: {attributes: {pay: wallet}}, remind: [2m]}\n" +
		"  - {match: {attributes: {vip: 1}}, after: 5m}\n", []string{
		"t:5:32: delays.rules[1].match.attributes.pay: a reminder is found by the order's row, which does not have this attribute; match by category, or map " +
			"your own tables in orders",
		"t:6:32: delays.rules[2].match.attributes.pay: a reminder is found by the order's row, which does not have this attribute; match by category, or map " +
			"your own tables in orders",
	}},
	{"rules that can never match", "buckets: [1m]\ndelays:\n  categories: {virtual: 10m, b: 30m}\n  rules:\n" +
		"  - {match: {category: [virtual, b], attributes: {pay: [x, y]}}, after: 1m}\n" +
		"  - {match: {category: virtual, attributes: {pay: z}}, after: 2m}\n" +
		"  - {match: {category: virtual, attributes: {pay: [z, y, x]}}, after: 3m}\n" +
		"  - {match: {category: b, attributes: {pay: x, country: [de, fr]}}, after: 4m}\n" +
		"  - {match: {attributes: {pay: z}}, after: 5m}\n" +
		"  - {match: {}, after: 6m}\n" +
		"  - {match: {category: b}, after: 7m}\n", []string{
		"t:7:13: delays.rules[2].match: no order gets here: delays.rules[1] on line 6, or one before it, matches first; " + hintShadow,
		// delays.rules[3] and [6] are not compared while an earlier rule is wrong
	}},
	{"a rule behind one for every order", "buckets: [1m]\ndelays:\n  categories: {b: 30m}\n  rules:\n  - {match: {}, after: 6m}\n" +
		"  - {match: {category: b}, after: 7m}\n", []string{
		"t:6:13: delays.rules[1].match: no order gets here: delays.rules[0] on line 5, or one before it, matches first; " + hintShadow,
	}},
	{"rules for unknown categories", "buckets: [1m]\ndelays:\n  categories: {virtual: 10m}\n  rules:\n  - {match: {category: virtaul}, after: 1m}\n" +
		"  - {match: {category: [virtual, gift]}, after: 1m}\n", []string{
		`t:5:24: delays.rules[0].match.category: "virtaul" is not in delays.categories; did you mean virtual? Otherwise add it to delays.categories`,
		`t:6:34: delays.rules[1].match.category: "gift" is not in delays.categories; add it to delays.categories`,
	}},
	{"a rule with too many values", "buckets: [1m]\ndelays:\n  rules:\n  - {match: {attributes: {a: [" + numbers(40) + "], b: [" + numbers(26) +
		"]}}, after: 1m}\n", []string{
		"t:4:13: delays.rules[0].match: its values have more than 1000 combinations; shorten the lists, or write several rules",
	}},
	{"too many rules", "buckets: [1m]\ndelays:\n  rules:\n" + strings.Repeat("  - {match: {}, after: 1m}\n", 101), []string{
		"t:4:3: delays.rules: 101 rules, at most 100; put values of rules with the same deadline into one list",
	}},
	{"names of categories", "buckets: [1m]\ndelays: {categories: {'': 1m, ' a': 1m, \"a\\tb\": 1m, ~: 1m, [a]: 1m}}", []string{
		`t:2:23: delays.categories: "" cannot be a name; use one without control characters or space at either end`,
		`t:2:31: delays.categories: " a" cannot be a name; use one without control characters or space at either end`,
		`t:2:41: delays.categories: "a\tb" cannot be a name; use one without control characters or space at either end`,
		"t:2:53: delays.categories: a key must be a word, found nothing; write each as key: value",
		"t:2:60: delays.categories: a key must be a word, found a list; write each as key: value",
	}},

	{"numbers", "buckets: [1m]\npartitions: 0\nreplication: two\ncloser: {http: {batch: 1000}}\ncompensator: {rate: '5', period: 0s}\n", []string{
		"t:2:13: partitions: 0 is out of range; write one from 1 to 10000",
		`t:3:14: replication: "two" is not a whole number; write one from 1 to 32767`,
		"t:4:24: closer.http.batch: 1000 is out of range; write one from 1 to 999",
		`t:5:21: compensator.rate: "5" is not a whole number; write one from 1 to 1000000`,
		`t:5:34: compensator.period: "0s" is not positive; ` + hintDuration,
	}},
	{"almost whole numbers", "buckets: [1m]\npartitions: 12.0\nreplication:\ncompensator: {rate: 0500}\ncloser: {http: {batch: 1_0}}\n", []string{
		`t:2:13: partitions: "12.0" is not a whole number; write one from 1 to 10000`,
		"t:3:13: replication: has no value; write one from 1 to 32767, or remove the key",
		`t:4:21: compensator.rate: "0500" is not a whole number; write one from 1 to 1000000`,
		`t:5:24: closer.http.batch: "1_0" is not a whole number; write one from 1 to 999`,
	}},
	{"values that do harm", "buckets: [2h, 5m]\ndelays: {default: 1ms, categories: {a: 10ms}}\n" +
		"compensator: {period: 3650d}\ncloser: {payment: {url: \"http://pay.example/x\"}}\n", []string{
		"t:1:15: buckets[1]: the smallest bucket is 5m, longer than 1m: every shorter delay goes there too, so a relay reads each of its records at once, and " +
			"orders close late if its memory is too small for them; add a bucket of 1m or less, such as 10s, or add long_smallest_bucket to accept",
		"t:2:19: delays.default: 1ms is shorter than 1s: an order would be closed before its customer has seen it; write 1s or more",
		"t:2:40: delays.categories.a: 10ms is shorter than 1s: an order would be closed before its customer has seen it; write 1s or more",
		"t:3:23: compensator.period: 3650d is longer than 1d: nobody would be told for so long that the compensation has not finished; write 1d or less, or " +
			"add long_period to accept",
		"t:4:25: closer.payment.url: its answers are not signed, and without TLS anybody on the way can change them: a paid order would be closed; write https://, " +
			"or add without_tls to accept",
	}},
	{"a service without TLS", "buckets: [1m]\ncloser: {http: {url: 'http://shop.internal/close'}}\n", []string{
		"t:2:22: closer.http.url: its answers are not signed, and without TLS anybody on the way can change them: an open order would count as closed; write " +
			"https://, or add without_tls to accept",
	}},
	{"an unknown kind of lock", "buckets: [1m]\ncompensator: {lock: zookeeper}\n", []string{
		"t:2:21: compensator.lock: \"zookeeper\" is neither redis nor database; write redis or database",
	}},
	{"a session that no broker accepts", "buckets: [1m]\nkafka: {session_timeout: 5s}\n", []string{
		"t:2:26: kafka.session_timeout: 5s is shorter than 6s: brokers refuse shorter sessions; write 6s or more",
	}},
	{"a session of an hour", "buckets: [1m]\nkafka: {session_timeout: 1h}\n", []string{
		"t:2:26: kafka.session_timeout: 1h is longer than 5m: the partitions of a process that died would stand still for so long; write 5m or less",
	}},
	{"values that are too short", "buckets: [1m]\ncompensator: {period: 1ms}\n", []string{
		"t:2:23: compensator.period: 1ms is shorter than 1s: the database would get a row for less than each second; write 1s or more",
	}},
	{"unknown names in accept", "buckets: [1m]\naccept: [long_smalest_bucket, everything, 7]\n", []string{
		`t:2:10: accept[0]: "long_smalest_bucket" is no name of a refusal; did you mean long_smallest_bucket?`,
		`t:2:31: accept[1]: "everything" is no name of a refusal; known here: long_smallest_bucket, long_period, without_tls, future_not_before, ` +
			`indexed_quantity, version_like_id, lock_like_created, far_due, never_due, nothing_due_later, overwritten_close, row_security, on_close_other_id, ` +
			`unnamed_status, paid_orders, ` +
			`filled_payment_id, filled_before, due_before_2000, due_before_created, stock_below_zero, old_orders`,
		`t:2:43: accept[2]: 7 is read as a value other than text; write it in quotes, "7"`,
	}},

	{"letters of names", "buckets: [1m]\ntopics: {prefix: ä}\n", []string{
		`t:2:18: topics.prefix: "ä" has the letter 'ä', which Kafka refuses; ` + hintLetters,
	}},
	{"a name that is a number", "buckets: [1m]\ntopics: {prefix: 2024}\n", []string{
		`t:2:18: topics.prefix: 2024 is read as a value other than text; write it in quotes, "2024"`,
	}},
	{"a name without a value", "buckets: [1m]\ntopics: {prefix: ~}\n", []string{
		"t:2:18: topics.prefix: has no value; write it in quotes, or remove the key",
	}},
	{"names that are too long", "buckets: [1m]\ntopics: {prefix: " + strings.Repeat("p", 227) + "}\n", []string{
		"t:2:18: topics.prefix: order-close-dead-letter has 250 letters with the prefix, and Kafka takes 249; shorten it",
	}},

	{"a second document", "buckets: [1m]\n---\npartitions: 0\n", []string{
		"t:2:1: a second document begins here; put everything into one and remove the line ---",
	}},
	{"a second document that is not YAML, after a mistake", "buckets: [1]\n---\na: [\n", []string{
		`t:1:11: buckets[0]: "1" has no unit; ` + hintDuration,
		"t:4:1: this is not YAML: did not find expected node content; " + hintYAML,
	}},
	{"a bracket left open", "partitions: 2\nbuckets: [1m\ncloser:\n  batch: 2\n", []string{
		"t:2:1: this is not YAML: did not find expected ',' or ']'; " + hintYAML,
	}},
	{"a quote left open", "buckets: [1m]\ntopics:\n  close: \"order\npartitions: 2\n", []string{
		"t:3:1: this is not YAML: found unexpected end of stream; " + hintYAML,
	}},
	{"an indentation that is off", "buckets: [1m]\ndelays:\n  default: 1m\n max: 3d\npartitions: 2\n", []string{
		"t:4:1: this is not YAML: did not find expected key; " + hintYAML,
	}},
	{"a colon left out", "buckets: [1m]\ndelays\n  max: 3d\n", []string{"t:2:1: this is not YAML: could not find expected ':'; " + hintYAML}},
	{"an alias without a target", "buckets: [1m]\ntopics: {close: *nope}\n", []string{
		"t:1:1: this is not YAML: unknown anchor 'nope' referenced; " + hintYAML,
	}},
	{"tabs", "buckets: [1m]\ndelays:\n\tmax: 3d\n", []string{
		"t:3:1: this is not YAML: found character that cannot start any token; " + hintYAML,
	}},
	{"Latin-1", "# gr\xfc\xdfe\nbuckets: [1m]\n", []string{"t:1:1: this is not YAML: invalid leading UTF-8 octet; " + hintYAML}},
	{"control characters", "buckets: [1m]\ntopics: {close: a\ab}\n", []string{"t:1:1: this is not YAML: control characters are not allowed; " + hintYAML}},
}

func TestParse_ReportsEveryProblemWithItsPosition(t *testing.T) {
	for _, row := range refusals {
		t.Run(row.name, func(t *testing.T) {
			c, err := config.Parse("t", []byte(row.file))
			must.That(t, err != nil, "accepted as %+v", c)
			expect.Same(t, strings.Split(err.Error(), "\n"), row.want, "the problems")
		})
	}
}

func TestParse_ErrorUnwrapsToProblems(t *testing.T) {
	_, err := config.Parse("t", []byte("buckets: [1m]\ndelays: {max: 10m, categories: {a: 1h}}\n"))
	var all config.Problems
	must.That(t, errors.As(err, &all) && len(all) == 2, "want two problems, got %v", err)
	var one config.Problem
	must.That(t, errors.As(err, &one), "errors.As finds no Problem")
	want := config.Problem{File: "t", Line: 2, Column: 15, Path: "delays.max",
		What: "10m is shorter than delays.default, 30m", Do: "raise it or set delays.default"}
	expect.Same(t, one, want, "problem")
}

func TestParseDuration_AcceptsGoNotationAndDays(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"10s":       10 * time.Second,
		"1h30m":     90 * time.Minute,
		"1.5s":      1500 * time.Millisecond,
		"1ms":       time.Millisecond,
		"30d":       720 * time.Hour,
		"1d12h":     36 * time.Hour,
		"0d1s":      time.Second,
		"106751d":   106751 * 24 * time.Hour,
		"2562047h":  2562047 * time.Hour,
		"1000000us": time.Second,
	} {
		got, err := config.ParseDuration(text)
		expect.That(t, err == nil && got == want, "%q: got %v, %v; want %v", text, got, err, want)
	}
}

func TestParseDuration_RefusesOtherText(t *testing.T) {
	for text, want := range map[string]string{
		"":            `"" is not a duration`,
		"30":          `"30" has no unit`,
		"1.5":         `"1.5" has no unit`,
		"5 m":         `"5 m" is not a duration`,
		"half a day":  `"half a day" is not a duration`,
		"1w":          `"1w" is not a duration`,
		"1.5d":        `"1.5d" is not a duration`,
		"d":           `"d" is not a duration`,
		"-1d":         `"-1d" is not a duration`,
		"1d-1h":       `"1d-1h" is not a duration`,
		"1d2d":        `"1d2d" is not a duration`,
		"2h1d":        `"2h1d" is not a duration`,
		"106752d":     `"106752d" is not a duration`,
		"106751d24h":  `"106751d24h" is not a duration`,
		"9999999999h": `"9999999999h" is not a duration`,
		"0s":          `"0s" is not positive`,
		"0d":          `"0d" is not positive`,
		"-5m":         `"-5m" is not positive`,
		"1500us":      `"1500us" is not a whole number of milliseconds`,
		"1d1ns":       `"1d1ns" is not a whole number of milliseconds`,
	} {
		got, err := config.ParseDuration(text)
		expect.That(t, err != nil && err.Error() == want, "%q:\n got %v, %v\nwant %s", text, got, err, want)
	}
}

func TestParseDuration_ReadsTheOutputOfFormatDuration(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Minute, time.Hour, 24 * time.Hour}).Draw(t, "unit")
		d := time.Duration(rapid.Int64Range(1, 100_000).Draw(t, "n")) * unit
		text := config.FormatDuration(d)
		got, err := config.ParseDuration(text)
		must.That(t, err == nil && got == d, "%v is written %q and read as %v, %v", d, text, got, err)
	})
}
