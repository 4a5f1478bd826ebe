// SPDX-License-Identifier: MIT OR Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

const (
	// groupAnnotation names the group of a pod, before any selector does.
	groupAnnotation = "memferry/group"
	// mirrorAnnotation has the UID by which kubelet knows a static pod. Whoever may create pods may write it, and could name those
	// of the control plane, so it is not believed.
	mirrorAnnotation = "kubernetes.io/config.mirror"
)

// A UID is a part of the names of cgroups, so nothing else is taken for one.
var podUID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// group is one of the daemon's groups, and which pods are in it.
type group struct {
	Name string `json:"name"`
	// Pods is a label selector as kubectl takes it. Empty, it selects none.
	Pods string `json:"pods,omitempty"`
	// Namespaces are those whose pods may be in it. Empty, all are.
	Namespaces []string `json:"namespaces,omitempty"`

	selector labels.Selector
}

func readGroups(path string) ([]group, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var groups []group
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&groups); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for i := range groups {
		groups[i].selector = labels.Nothing()
		if groups[i].Pods == "" {
			continue
		}
		if groups[i].selector, err = labels.Parse(groups[i].Pods); err != nil {
			return nil, fmt.Errorf("%s: pods of group %s: %w", path, groups[i].Name, err)
		}
	}
	return groups, nil
}

func (g *group) allows(namespace string) bool {
	return len(g.Namespaces) == 0 || slices.Contains(g.Namespaces, namespace)
}

// groupOf returns the name of the pod's group, "" for none, and what is wrong with its annotation. A wrong annotation counts as none.
func groupOf(groups []group, pod *metav1.PartialObjectMetadata) (name, wrong string) {
	if wanted, ok := pod.Annotations[groupAnnotation]; ok {
		var allowed []string
		for _, g := range groups {
			if g.allows(pod.Namespace) {
				allowed = append(allowed, g.Name)
			}
		}
		if slices.Contains(allowed, wanted) {
			return wanted, ""
		}
		wrong = fmt.Sprintf("annotation %s: %q is no group that pods of namespace %s may be in; these are: %s. Labels decide now.",
			groupAnnotation, wanted, pod.Namespace, strings.Join(allowed, ", "))
	}
	for _, g := range groups {
		if g.allows(pod.Namespace) && g.selector.Matches(labels.Set(pod.Labels)) {
			return g.Name, wrong
		}
	}
	return "", wrong
}

// cgroupNames returns the names that the pod's cgroup can have: with the systemd driver of kubelet, of each QoS class, and with
// the cgroupfs driver. A UID is in one of them only, so the driver and the class need not be known.
func cgroupNames(pod *metav1.PartialObjectMetadata) (names []string, wrong string) {
	if _, ok := pod.Annotations[mirrorAnnotation]; ok {
		return nil, "it is a static pod, whose cgroup nothing tells that could be believed: it is in no group; name its processes"
	}
	uid := string(pod.UID)
	if !podUID.MatchString(uid) {
		return nil, fmt.Sprintf("%q is no UID of a pod, so its cgroup is not known: it is in no group", uid)
	}
	// In the name of a slice "-" separates the slices above it.
	slice := "pod" + strings.ReplaceAll(uid, "-", "_") + ".slice"
	return []string{
		"kubepods-" + slice,
		"kubepods-burstable-" + slice,
		"kubepods-besteffort-" + slice,
		"pod" + uid,
	}, ""
}

// lists returns for each group the text of its file, one name of a cgroup a line, and for each pod with a mistake what it is.
func lists(groups []group, pods []*metav1.PartialObjectMetadata) (map[string]string, map[*metav1.PartialObjectMetadata]string) {
	names := map[string][]string{}
	mistakes := map[*metav1.PartialObjectMetadata]string{}
	for _, pod := range pods {
		name, wrong := groupOf(groups, pod)
		if name != "" {
			of, unknown := cgroupNames(pod)
			names[name] = append(names[name], of...)
			if unknown != "" {
				wrong = unknown
			}
		}
		if wrong != "" {
			mistakes[pod] = wrong
		}
	}
	texts := map[string]string{}
	for _, g := range groups {
		// Sorted, so that the same pods give the same file.
		slices.Sort(names[g.Name])
		texts[g.Name] = ""
		if len(names[g.Name]) > 0 {
			texts[g.Name] = strings.Join(names[g.Name], "\n") + "\n"
		}
	}
	return texts, mistakes
}
