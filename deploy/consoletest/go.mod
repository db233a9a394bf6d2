module github.com/orderclose/orderclose/deploy/consoletest

go 1.26.0

replace github.com/orderclose/orderclose => ../..

require (
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.23.0
	github.com/orderclose/orderclose v0.0.0
	github.com/segmentio/kafka-go v0.4.51
)

require (
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/klauspost/compress v1.20.4 // indirect
	github.com/pierrec/lz4/v4 v4.1.33 // indirect
)
