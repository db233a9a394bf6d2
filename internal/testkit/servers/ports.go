package servers

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// usedPorts are the ports that FreePort has returned.
var usedPorts sync.Map

// FreePort returns a port on which nothing listens, a different one each time. It is below those that
// the kernel gives to the local ends of connections, so a server that is started again finds it free.
func FreePort() (string, error) {
	for range 1000 {
		port := strconv.Itoa(10240 + rand.IntN(22000))
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			return "", err
		}
		if _, used := usedPorts.LoadOrStore(port, true); !used {
			return port, nil
		}
	}
	return "", errors.New("no free port between 10240 and 32240")
}

// FreeAddress returns an address on the loopback with a free port.
func FreeAddress() (string, error) {
	port, err := FreePort()
	return "127.0.0.1:" + port, err
}
