package config

import (
	"net"
	"strings"
)

// RedisKind is how the servers of a Redis URL belong together.
type RedisKind string

// The kinds of Redis.
const (
	RedisSingle   RedisKind = ""
	RedisSentinel RedisKind = "sentinel"
	RedisCluster  RedisKind = "cluster"
)

// SplitRedis splits a URL such as redis+sentinel://user:password@host1:26379,host2/0?master_name=m into the kind, the addresses of
// all servers, and the URL of the first server alone, redis://user:password@host1:26379/0?master_name=m. Any other URL is
// returned as first.
func SplitRedis(url string) (first string, kind RedisKind, addrs []string) {
	scheme, rest, _ := strings.Cut(url, "://")
	scheme, after, _ := strings.Cut(scheme, "+")
	port := map[RedisKind]string{RedisSentinel: "26379", RedisCluster: "6379"}[RedisKind(after)]
	if port == "" || scheme != "redis" && scheme != "rediss" {
		return url, RedisSingle, nil
	}
	end := strings.IndexAny(rest+"/", "/?#")
	hosts := strings.LastIndex(rest[:end], "@") + 1
	for host := range strings.SplitSeq(rest[hosts:end], ",") {
		if host = strings.TrimSpace(host); !hostPort(host, 1) {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		addrs = append(addrs, host)
	}
	return scheme + "://" + rest[:hosts] + addrs[0] + rest[end:], RedisKind(after), addrs
}
