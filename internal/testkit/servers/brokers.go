package servers

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Brokers returns three brokers that form a cluster, each also a controller, in folders below dir. Three are the fewest that keep working without one of
// them. The first broker has the id 1. settings are lines of server.properties.
//
// If proxy is set, clients may also connect through proxies: Brokers calls proxy with the address of another listener of each broker, and the broker
// tells those who connect there to use the address that proxy returns.
func Brokers(dir string, proxy func(target string) (string, error), settings ...string) (all []*Server, err error) {
	return BrokersOf(3, dir, proxy, settings...)
}

// BrokersOf is Brokers for a cluster of n brokers, one or three.
func BrokersOf(n int, dir string, proxy func(target string) (string, error), settings ...string) (all []*Server, err error) {
	var voters []string
	var controllers []string
	for i := range n {
		controller, err := FreeAddress()
		if err != nil {
			return nil, err
		}
		controllers = append(controllers, controller)
		voters = append(voters, fmt.Sprintf("%d@%s", i+1, controller))
	}
	for i, controller := range controllers {
		s, err := New("kafka", filepath.Join(dir, fmt.Sprint("kafka-", i+1)))
		if err != nil {
			return nil, err
		}
		listeners, advertised := "INNER://"+s.Addr()+",CONTROLLER://"+controller, "INNER://"+s.Addr()
		if proxy != nil {
			client, err := FreeAddress()
			if err != nil {
				return nil, err
			}
			through, err := proxy(client)
			if err != nil {
				return nil, err
			}
			listeners, advertised = listeners+",CLIENT://"+client, advertised+",CLIENT://"+through
		}
		s.Args = append([]string{
			fmt.Sprint("node.id=", i+1), "listeners=" + listeners, "advertised.listeners=" + advertised,
			"listener.security.protocol.map=INNER:PLAINTEXT,CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT", "inter.broker.listener.name=INNER",
			"controller.quorum.voters=" + strings.Join(voters, ","),
			fmt.Sprint("offsets.topic.replication.factor=", n), fmt.Sprint("transaction.state.log.replication.factor=", n),
			fmt.Sprint("transaction.state.log.min.isr=", (n+1)/2), fmt.Sprint("share.coordinator.state.topic.replication.factor=", n),
			fmt.Sprint("share.coordinator.state.topic.min.isr=", (n+1)/2),
		}, settings...)
		// Containers do not share a loopback interface.
		s.Env = []string{"ORDERCLOSE_SERVERS=native", "KAFKA_HEAP_OPTS=-Xmx384m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
		all = append(all, s)
	}
	return all, nil
}

// Addrs returns the addresses of servers.
func Addrs(all []*Server) (addrs []string) {
	for _, s := range all {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}
