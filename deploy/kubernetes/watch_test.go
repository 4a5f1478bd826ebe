// SPDX-License-Identifier: MIT OR Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

const meta = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":%q,"namespace":"prod","uid":%q,"labels":{"tier":"db"},"annotations":{"memferry/group":%q}}}`

// apiServer lists one pod and watches for another. It takes requests for pods of node n1, for metadata only, and nothing else but
// Events.
func apiServer(t *testing.T, watched <-chan string, events chan<- corev1.Event) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		query := r.URL.Query()
		switch {
		case r.Method == http.MethodPost && r.URL.Path == "/api/v1/namespaces/prod/events":
			var event corev1.Event
			body, _ := io.ReadAll(r.Body)
			if err := json.Unmarshal(body, &event); err != nil {
				t.Errorf("%v: %s", err, body)
			}
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write(body)
			events <- event
		case r.Method != http.MethodGet || r.URL.Path != "/api/v1/pods" ||
			query.Get("fieldSelector") != "spec.nodeName=n1" ||
			!strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata"):
			t.Errorf("it asked: %s %s, %s", r.Method, r.URL, r.Header.Get("Accept"))
			w.WriteHeader(http.StatusForbidden)
		case query.Get("sendInitialEvents") != "":
			// As API servers that cannot list by a watch.
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
		case query.Get("watch") == "":
			_, _ = fmt.Fprintf(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[`+meta+`]}`,
				"first", uid, "typo")
		default:
			w.(http.Flusher).Flush()
			for {
				select {
				case <-r.Context().Done():
					return
				case event := <-watched:
					_, _ = io.WriteString(w, event)
					w.(http.Flusher).Flush()
				}
			}
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// until waits for the text of a file.
func until(t *testing.T, path string, holds func(string) bool) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(path)
		if err == nil && holds(string(text)) {
			return
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("%s: %q, %v", path, text, err)
		}
	}
}

func TestFilesFollowThePodsOfTheNode(t *testing.T) {
	watched, events := make(chan string), make(chan corev1.Event, 9)
	server := apiServer(t, watched, events)
	groups, err := groupsOf(t, `[{"name":"db","pods":"tier=db"},{"name":"batch"}]`)
	if err != nil {
		t.Fatal(err)
	}
	into := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- watch(ctx, &rest.Config{Host: server.URL}, "n1", groups, into) }()

	db, second := filepath.Join(into, "db"), "ffffffff-0000-1111-2222-333344445555"
	until(t, db, func(text string) bool { return strings.Contains(text, "pod"+uid+"\n") })
	until(t, filepath.Join(into, "batch"), func(text string) bool { return text == "" })
	// The annotation names no group, so its labels decide, and it is told.
	select {
	case event := <-events:
		if event.Type != "Warning" || event.InvolvedObject.Name != "first" || string(event.InvolvedObject.UID) != uid ||
			!strings.Contains(event.Message, `"typo" is no group`) {
			t.Errorf("%+v", event)
		}
	case <-time.After(time.Minute):
		t.Fatal("no Event")
	}
	watched <- `{"type":"ADDED","object":` + fmt.Sprintf(meta, "second", second, "batch") + "}\n"
	until(t, filepath.Join(into, "batch"), func(text string) bool { return strings.Contains(text, "pod"+second+"\n") })
	watched <- `{"type":"DELETED","object":` + fmt.Sprintf(meta, "first", uid, "typo") + "}\n"
	until(t, db, func(text string) bool { return text == "" })
	stop()
	<-ended
	// One mistake is one Event, and no half-written file stays.
	if len(events) != 0 {
		t.Errorf("%d more Events", len(events))
	}
	if files, err := os.ReadDir(into); err != nil || len(files) != 2 {
		t.Errorf("%v, %v", files, err)
	}
}

func TestOnlyMetricsAreHandedOn(t *testing.T) {
	daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.URL.Path+" "+r.Header.Get("Accept"))
	}))
	at, err := url.Parse(daemon.URL)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method, path string) (int, string) {
		request := httptest.NewRequest(method, path, nil)
		request.Header.Set("Accept", "application/openmetrics-text")
		answer := httptest.NewRecorder()
		handOn(at).ServeHTTP(answer, request)
		return answer.Code, answer.Body.String()
	}
	if code, text := ask("GET", "/metrics"); code != 200 || text != "/metrics application/openmetrics-text" {
		t.Error(code, text)
	}
	for _, other := range [][2]string{{"POST", "/metrics"}, {"GET", "/"}} {
		if code, _ := ask(other[0], other[1]); code < 400 {
			t.Error(other, code)
		}
	}
	// Not ready without the daemon.
	daemon.Close()
	if code, _ := ask("GET", "/metrics"); code != http.StatusBadGateway {
		t.Error(code)
	}
}
