// SPDX-License-Identifier: MIT OR Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/releaseutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

const least = "image: {repository: r.example/memferry}\n"

const full = least + `
imagePullSecrets: [{name: pull}]
nodeSelector: {memferry: act}
tolerations: [{key: slow, operator: Exists, effect: NoSchedule}]
priorityClassName: system-node-critical
maxUnavailable: 10%
config:
  act: true
  source_cpu: "5%"
  brakes: {bytes_per_second: 268435456, waste: 40}
  groups:
    - {name: db, pods: "tier in (db, cache),!test", namespaces: [prod], protect: "40%", weight: 300}
    - {name: batch, limit: 68719476736}
    - {name: node, units: [kubelet.service], processes: ["containerd*", 'a"b\c'], limit: "1.5G"}
security:
  seccompProfile: {type: Localhost, localhostProfile: memferry.json}
  seLinuxOptions: {type: spc_t}
serviceMonitor: {enabled: true, labels: {release: prometheus}}
`

// render returns the objects by their kinds, decoded strictly: a field that the API does not know is an error.
func render(t *testing.T, values string) (map[string]runtime.Object, error) {
	t.Helper()
	chart, err := loader.Load("chart")
	if err != nil {
		t.Fatal(err)
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	release := chartutil.ReleaseOptions{Name: "memferry-act", Namespace: "tiering", IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, given, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, rbacv1.AddToScheme, monitoringv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	// As docs/fleet.md makes it.
	rules, err := os.ReadFile("../prometheus/memferry.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	files["rules.yaml"] = "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata: {name: memferry}\nspec:\n  " +
		strings.ReplaceAll(string(rules), "\n", "\n  ")
	objects := map[string]runtime.Object{}
	for name, file := range files {
		if filepath.Ext(name) != ".yaml" {
			continue
		}
		for _, text := range releaseutil.SplitManifests(file) {
			object, kind, err := decoder.Decode([]byte(text), nil, nil)
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, text)
			}
			if objects[kind.Kind] != nil {
				t.Fatalf("two of %s", kind.Kind)
			}
			objects[kind.Kind] = object
		}
	}
	return objects, nil
}

func TestObjectsAreOfTheAPIAndTheDaemonTakesItsConfiguration(t *testing.T) {
	memferryd := os.Getenv("MEMFERRYD")
	if memferryd == "" {
		t.Fatal("MEMFERRYD is not set: the path of the built daemon; `make test-kubernetes` sets it")
	}
	for _, test := range []struct {
		values, says string
		cpu          string
		groups       []string
		objects      int
	}{
		{least, ": 0 groups, only watches\n", "3%", nil, 7},
		{full, ": 3 groups, acts\n", "5%", []string{"db", "batch", "node"}, 8},
	} {
		objects, err := render(t, test.values)
		if err != nil {
			t.Fatal(err)
		}
		if len(objects) != test.objects {
			t.Errorf("%d objects", len(objects))
		}
		data := objects["ConfigMap"].(*corev1.ConfigMap).Data
		file := filepath.Join(t.TempDir(), "memferry.toml")
		if err := os.WriteFile(file, []byte(data["memferry.toml"]), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(memferryd, "check", "--config", file).CombinedOutput()
		if err != nil || !strings.Contains(string(out), test.says) {
			t.Errorf("%v: %s\n%s", err, out, data["memferry.toml"])
		}
		if !strings.Contains(data["memferry.toml"], "\nsource_cpu = \""+test.cpu+"\"\n") {
			t.Errorf("not %s of one CPU:\n%s", test.cpu, data["memferry.toml"])
		}
		groups, err := groupsOf(t, data["pods.json"])
		if err != nil || len(groups) != len(test.groups) {
			t.Fatalf("%v: %s", err, data["pods.json"])
		}
		for i, name := range test.groups {
			line := fmt.Sprintf("cgroup_names_file = \"/run/memferry-pods/%s\"\n", name)
			if groups[i].Name != name || !strings.Contains(data["memferry.toml"], line) {
				t.Errorf("%s, or %s", name, line)
			}
		}
	}
}

func TestObjectsFitEachOther(t *testing.T) {
	objects, err := render(t, full)
	if err != nil {
		t.Fatal(err)
	}
	daemonSet := objects["DaemonSet"].(*appsv1.DaemonSet)
	service, monitor := objects["Service"].(*corev1.Service), objects["ServiceMonitor"].(*monitoringv1.ServiceMonitor)
	account, binding := objects["ServiceAccount"].(*corev1.ServiceAccount), objects["ClusterRoleBinding"].(*rbacv1.ClusterRoleBinding)
	role, spec := objects["ClusterRole"].(*rbacv1.ClusterRole), daemonSet.Spec.Template.Spec
	podLabels := labels.Set(daemonSet.Spec.Template.Labels)
	for what, selector := range map[string]labels.Selector{
		"DaemonSet": labels.SelectorFromSet(daemonSet.Spec.Selector.MatchLabels),
		"Service":   labels.SelectorFromSet(service.Spec.Selector),
	} {
		if selector.Empty() || !selector.Matches(podLabels) {
			t.Errorf("the selector of %s: %s", what, selector)
		}
	}
	if !labels.SelectorFromSet(monitor.Spec.Selector.MatchLabels).Matches(labels.Set(service.Labels)) {
		t.Error("the selector of ServiceMonitor")
	}
	// Rules and dashboard ask for this job.
	if job := service.Labels[monitor.Spec.JobLabel]; job != "memferry" {
		t.Errorf("job %q", job)
	}
	if monitor.Spec.Endpoints[0].Port != service.Spec.Ports[0].Name ||
		service.Spec.Ports[0].TargetPort.String() != spec.Containers[1].Ports[0].Name {
		t.Error("names of ports")
	}
	subject := binding.Subjects[0]
	if spec.ServiceAccountName != account.Name || subject.Name != account.Name || subject.Namespace != account.Namespace ||
		binding.RoleRef.Name != role.Name {
		t.Error("names of the account")
	}
	volumes := map[string]bool{}
	for _, volume := range spec.Volumes {
		volumes[volume.Name] = true
	}
	for _, container := range spec.Containers {
		for _, mount := range container.VolumeMounts {
			if !volumes[mount.Name] {
				t.Errorf("%s mounts %s", container.Name, mount.Name)
			}
			// The daemon has no token, and what pods say cannot come back to it as a file of its own.
			isRead := mount.Name == "config" || mount.Name == "token" || mount.Name == "tracing" || mount.Name == "names" && container.Name == "daemon"
			if container.Name == "daemon" && mount.Name == "token" || mount.ReadOnly != isRead {
				t.Errorf("%s mounts %s", container.Name, mount.Name)
			}
		}
	}
	// As docs/daemon.md has them: without BPF the daemon walks numa_maps, and each process waits for that.
	for i, want := range []string{"SYS_PTRACE SYS_NICE DAC_READ_SEARCH BPF PERFMON", ""} {
		var names []string
		for _, of := range spec.Containers[i].SecurityContext.Capabilities.Add {
			names = append(names, string(of))
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("capabilities of %s: %s", spec.Containers[i].Name, got)
		}
	}
	// The configuration is in the pod's annotation, so that a change is rolled out.
	changed, err := render(t, strings.Replace(full, "waste: 40", "waste: 41", 1))
	if err != nil {
		t.Fatal(err)
	}
	const sum = "checksum/config"
	if changed["DaemonSet"].(*appsv1.DaemonSet).Spec.Template.Annotations[sum] == daemonSet.Spec.Template.Annotations[sum] {
		t.Error("a changed configuration changes no pod")
	}
}

func TestLint(t *testing.T) {
	given, err := chartutil.ReadValues([]byte(full))
	if err != nil {
		t.Fatal(err)
	}
	for _, message := range lint.All("chart", given, "tiering", true).Messages {
		// An icon is for shops of charts.
		if !strings.Contains(message.Error(), "icon is recommended") {
			t.Error(message)
		}
	}
}

func TestBadValuesAreRefused(t *testing.T) {
	for values, says := range map[string]string{
		"":                                       "repository",
		least + "conf: {act: true}":              "conf",
		least + "config: {act: 1}":               "act",
		least + "config: {actt: true}":           "actt",
		least + `config: {brakes: {waste: 101}}`: "waste",
		least + `config: {brakes: {waste: 0.5}}`: "waste",
		least + `config: {brakes: {bytes_per_second: fast}}`:              "bytes_per_second",
		least + `config: {source: pghot}`:                                 "source",
		least + `config: {source_cpu: 3}`:                                 "source_cpu",
		least + `config: {source_cpu: "0%"}`:                              "source_cpu",
		least + `config: {groups: [{pods: a=b}]}`:                         "name",
		least + `config: {groups: [{name: ../x}]}`:                        "name",
		least + `config: {groups: [{name: a, protect: "140%"}]}`:          "protect",
		least + `config: {groups: [{name: a, weight: 0}]}`:                "weight",
		least + `config: {groups: [{name: a, cgroups: [/system.slice]}]}`: "cgroups",
		least + "nodeSelector: {memferry: null}":                          "nodeSelector",
		least + "security: {seccompProfile: {type: RuntimeDefault}}":      "seccompProfile",
		least + "maxUnavailable: 0":                                       "maxUnavailable",
	} {
		_, err := render(t, values)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", values, err)
		}
	}
}
