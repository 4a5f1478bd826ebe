// SPDX-License-Identifier: MIT OR Apache-2.0

// memferry-pods tells the daemon of its node which cgroups belong to which group: it watches the pods of the node through the API
// server, and keeps for each group a file with the names of their cgroups, which the daemon reads every five seconds.
// It also hands on the daemon's metrics, which the daemon gives to this pod alone.
//
// Of pods it asks for metadata only. It writes nothing but these files, and Events on pods whose annotation is wrong.
package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
)

func main() {
	groups := flag.String("groups", "/etc/memferry/pods.json", "which pods are in which group")
	into := flag.String("into", "/run/memferry-pods", "folder for a file per group")
	listen := flag.String("listen", ":9465", "where to hand on metrics")
	metrics := flag.String("metrics", "http://127.0.0.1:9464", "the daemon's metrics")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := start(ctx, *groups, *into, *listen, *metrics); err != nil {
		slog.Error("memferry-pods ended", "error", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, groupsFile, into, listen, metrics string) error {
	groups, err := readGroups(groupsFile)
	if err != nil {
		return err
	}
	node := os.Getenv("NODE_NAME")
	if node == "" {
		return errors.New("NODE_NAME is not set: the name of this node, by the downward API")
	}
	daemon, err := url.Parse(metrics)
	if err != nil {
		return err
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	failed := make(chan error, 2)
	server := http.Server{Addr: listen, Handler: handOn(daemon), ReadHeaderTimeout: 10 * time.Second}
	go func() { failed <- server.ListenAndServe() }()
	go func() { failed <- watch(ctx, config, node, groups, into) }()
	select {
	case <-ctx.Done():
		return server.Close()
	case err := <-failed:
		return err
	}
}

// handOn answers GET /metrics with what the daemon answers, and nothing else.
func handOn(daemon *url.URL) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", httputil.NewSingleHostReverseProxy(daemon))
	return mux
}

// watch keeps the files until ctx ends. While the API server does not answer they stay as they are.
func watch(ctx context.Context, config *rest.Config, node string, groups []group, into string) error {
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	events := record.NewBroadcaster(record.WithContext(ctx))
	defer events.Shutdown()
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clients.CoreV1().Events("")})
	recorder := events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "memferry", Host: node})

	factory := metadatainformer.NewFilteredSharedInformerFactory(client, 0, metav1.NamespaceAll, func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
	})
	informer := factory.ForResource(corev1.SchemeGroupVersion.WithResource("pods"))
	changed := make(chan struct{}, 1)
	note := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	handle, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { note() },
		UpdateFunc: func(_, _ any) { note() },
		DeleteFunc: func(any) { note() },
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	// The files of the last run hold until all pods are known.
	if !cache.WaitForCacheSync(ctx.Done(), handle.HasSynced) {
		return ctx.Err()
	}
	// A node without pods changes nothing, but has files.
	note()
	told := map[types.UID]string{}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
		objects, err := informer.Lister().List(labels.Everything())
		if err != nil {
			return err
		}
		pods := make([]*metav1.PartialObjectMetadata, 0, len(objects))
		for _, object := range objects {
			pods = append(pods, object.(*metav1.PartialObjectMetadata))
		}
		texts, mistakes := lists(groups, pods)
		for name, text := range texts {
			if err := put(filepath.Join(into, name), text); err != nil {
				return err
			}
		}
		told = tell(recorder, mistakes, told)
	}
}

// tell reports each mistake once, as an Event of the pod and in the log. Returns what is told now.
func tell(recorder record.EventRecorder, mistakes map[*metav1.PartialObjectMetadata]string, told map[types.UID]string) map[types.UID]string {
	now := map[types.UID]string{}
	for pod, wrong := range mistakes {
		now[pod.UID] = wrong
		if told[pod.UID] == wrong {
			continue
		}
		slog.Warn(wrong, "namespace", pod.Namespace, "pod", pod.Name)
		recorder.Event(&corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		}, corev1.EventTypeWarning, "MemferryGroup", wrong)
	}
	return now
}

// put replaces a file by one that is complete.
func put(path, text string) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == text {
		return nil
	}
	// No group's name begins with a dot.
	whole := filepath.Join(filepath.Dir(path), ".new")
	if err := os.WriteFile(whole, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(whole, path)
}
