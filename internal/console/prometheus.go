package console

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/orderclose/orderclose/internal/config"
)

// maxPrometheusAnswer is some hundred times what a query of one series has.
const maxPrometheusAnswer = 1 << 20

// historyQueries returns the query of each line. labels is the beginning of a selector that chooses the pipeline's processes, such as
// {job="orderclose",
func historyQueries(labels string, topics config.Topics) []string {
	before := labels + `topic!="` + topics.Close + `"}`
	return []string{
		"sum(rate(orderclose_relay_forwarded_total" + labels + "}[5m])) + deriv(sum(max by (topic) (orderclose_waiting_records" + before + "))[5m:1m])",
		"sum(rate(orderclose_close_total" + labels + `path=~"pipeline|replay"}[5m]))`,
		"sum(rate(orderclose_retry_total" + labels + "}[5m]))",
		"sum(max by (topic) (orderclose_waiting_records" + labels + "}))",
		"max(orderclose_waiting_overdue_seconds" + labels + "})",
		"histogram_quantile(0.99, sum by (le) (rate(orderclose_close_end_to_end_lateness_seconds_bucket" + labels + `path="pipeline"}[5m]))) >= 0`,
	}
}

// fromPrometheus returns the history that a Prometheus has. The query of its address has labels, and their values, of the
// processes of this pipeline.
func fromPrometheus(ctx context.Context, address string, topics config.Topics, now time.Time) ([]sample, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err // it was checked
	}
	labels := "{"
	for label, values := range u.Query() {
		for _, v := range values {
			labels += label + "=" + strconv.Quote(v) + ","
		}
	}
	u = u.JoinPath("/api/v1/query_range")
	end := now.Truncate(sampleEvery)
	samples := make([]sample, maxSamples)
	for i := range samples {
		samples[i].At = end.Add(time.Duration(i+1-maxSamples) * sampleEvery).UTC()
	}
	for line, query := range historyQueries(labels, topics) {
		u.RawQuery = url.Values{
			"query": {query}, "step": {fmt.Sprint(sampleEvery.Seconds())},
			"start": {samples[0].At.Format(time.RFC3339)}, "end": {end.UTC().Format(time.RFC3339)},
		}.Encode()
		points, err := queryPrometheus(ctx, u.String())
		if err != nil {
			return nil, err
		}
		for at, v := range points {
			if i := int(at.Sub(samples[0].At) / sampleEvery); i >= 0 && i < maxSamples {
				*samples[i].value(line) = &v
			}
		}
	}
	for i := range samples { // the time before the first value is not shown
		if samples[i].Waiting != nil || samples[i].Handled != nil {
			return samples[i:], nil
		}
	}
	return nil, fmt.Errorf("it has no metrics of these processes: the labels are %s}", strings.TrimSuffix(labels, ","))
}

// queryPrometheus returns the values of the only series of an answer. An error shows no password of the address.
func queryPrometheus(ctx context.Context, address string) (map[time.Time]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var answer struct {
		Error string
		Data  struct{ Result model.Matrix }
	}
	d := json.NewDecoder(io.LimitReader(response.Body, maxPrometheusAnswer))
	if err := d.Decode(&answer); err != nil || response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d %s", response.StatusCode, answer.Error)
	}
	points := map[time.Time]float64{}
	for _, series := range answer.Data.Result {
		for _, point := range series.Values {
			if v := float64(point.Value); !math.IsNaN(v) && !math.IsInf(v, 0) {
				points[point.Timestamp.Time()] = v
			}
		}
	}
	return points, nil
}
