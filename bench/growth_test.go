package main

import "testing"

func TestGrowthRows_ChangeOneParameterAtATime(t *testing.T) {
	rows := growthRows()
	for _, r := range rows[1:] {
		changed := 0
		for _, differs := range []bool{
			r.partitions != rows[0].partitions, r.processes != rows[0].processes, r.size != rows[0].size, r.codec != rows[0].codec,
		} {
			if differs {
				changed++
			}
		}
		if changed != 1 {
			t.Errorf("%+v changes %d things", r, changed)
		}
	}
}
