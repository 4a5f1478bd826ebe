// SPDX-License-Identifier: MIT OR Apache-2.0

// Package grafana holds the dashboard.
package grafana

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// Reads a dashboard by Grafana's own types: no field may be unknown or missing, of no panel either.
func read(text []byte) (dashboard.Dashboard, error) {
	var read dashboard.Dashboard
	err := read.UnmarshalJSONStrict(text)
	if err == nil {
		err = read.Validate()
	}
	// What has no errors may be an empty list of them.
	var list cog.BuildErrors
	if errors.As(err, &list) && len(list) == 0 {
		err = nil
	}
	return read, err
}

func TestDashboardIsGrafanas(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	text, err := os.ReadFile("memferry.json")
	if err != nil {
		t.Fatal(err)
	}
	found, err := read(text)
	if err != nil {
		t.Fatal(err)
	}
	if found.Title == nil || *found.Title != "Memferry" || len(found.Panels) < 20 {
		t.Fatalf("%d panels of %v", len(found.Panels), found.Title)
	}
	for _, wrong := range []string{"reduceOptions", "showLegend", "gridPos", "refresh"} {
		changed := bytes.Replace(text, []byte(wrong), []byte(wrong+"2"), 1)
		if _, err := read(changed); err == nil {
			t.Errorf("%s2 is taken", wrong)
		}
	}
}
