package scenario

import "fmt"

// topicsFile configures the pipeline with seconds in place of minutes.
const topicsFile = `topics: {prefix: %[1]s}
partitions: 4
replication: %[2]d
buckets: [1s, 2s, 5s]
kafka: {session_timeout: 6s}
delays:
  default: 6s
  categories: {flash-sale: 2s, virtual: 5s, physical: 8s}
compensator:
  period: 5s
`

// Topics returns a topics.yaml of seconds for tests on real servers, with a prefix of all names.
func Topics(prefix string, replication int) string {
	return fmt.Sprintf(topicsFile, prefix, replication)
}
