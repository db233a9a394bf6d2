// Package clients has clients of orderclose in Java, Node, Python and PHP, one file each, and their test.
package clients
