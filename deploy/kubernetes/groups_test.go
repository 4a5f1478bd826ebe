// SPDX-License-Identifier: MIT OR Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const uid = "0a1b2c3d-0000-1111-2222-333344445555"

func pod(namespace, uid string, labels, annotations map[string]string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "a", Namespace: namespace, UID: types.UID(uid), Labels: labels, Annotations: annotations,
	}}
}

func groupsOf(t *testing.T, text string) ([]group, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pods.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return readGroups(path)
}

func TestAnnotationThenLabelsSayTheGroup(t *testing.T) {
	groups, err := groupsOf(t, `[{"name":"db","pods":"tier in (db, cache)","namespaces":["prod"]},{"name":"batch"},
		{"name":"rest","pods":"tier"}]`)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ namespace, tier, annotation, name, wrong string }{
		{"prod", "db", "", "db", ""},
		{"prod", "cache", "", "db", ""},
		{"test", "db", "", "rest", ""},
		{"prod", "", "", "", ""},
		// Nothing but the annotation leads there.
		{"prod", "db", "batch", "batch", ""},
		{"prod", "", "batch", "batch", ""},
		// A namespace cannot take what is another's.
		{"test", "", "db", "", "no group that pods of namespace test may be in; these are: batch, rest."},
		{"prod", "db", "dbb", "db", `"dbb" is no group`},
	} {
		labels, annotations := map[string]string{}, map[string]string{}
		if test.tier != "" {
			labels["tier"] = test.tier
		}
		if test.annotation != "" {
			annotations[groupAnnotation] = test.annotation
		}
		name, wrong := groupOf(groups, pod(test.namespace, uid, labels, annotations))
		if name != test.name || !strings.Contains(wrong, test.wrong) || (wrong == "") != (test.wrong == "") {
			t.Errorf("%+v: group %q, %q", test, name, wrong)
		}
	}
}

func TestNamesOfBothDriversAndEachClass(t *testing.T) {
	for _, test := range []struct {
		uid   string
		names []string
	}{
		{uid, []string{
			"kubepods-pod0a1b2c3d_0000_1111_2222_333344445555.slice",
			"kubepods-burstable-pod0a1b2c3d_0000_1111_2222_333344445555.slice",
			"kubepods-besteffort-pod0a1b2c3d_0000_1111_2222_333344445555.slice",
			"pod0a1b2c3d-0000-1111-2222-333344445555",
		}},
		// As kubelet makes those of static pods.
		{"00112233445566778899aabbccddeeff", nil},
		{"x\nsystem.slice", nil},
		{"", nil},
	} {
		names, wrong := cgroupNames(pod("a", test.uid, nil, nil))
		if strings.Join(names, " ") != strings.Join(test.names, " ") || (wrong == "") != (test.names != nil) {
			t.Errorf("%+v: %q, %q", test, names, wrong)
		}
	}
}

func TestNobodyNamesAStaticPod(t *testing.T) {
	mirror := map[string]string{mirrorAnnotation: "00112233445566778899aabbccddeeff"}
	if names, wrong := cgroupNames(pod("a", uid, nil, mirror)); names != nil || wrong == "" {
		t.Errorf("%q, %q", names, wrong)
	}
}

func TestOneMistakeKeepsNoOtherPodOut(t *testing.T) {
	groups, err := groupsOf(t, `[{"name":"db","pods":"tier=db"},{"name":"empty","pods":"tier=none"}]`)
	if err != nil {
		t.Fatal(err)
	}
	db := map[string]string{"tier": "db"}
	bad := pod("b", "no UID", db, nil)
	lost := pod("b", uid, nil, map[string]string{groupAnnotation: "../etc"})
	texts, mistakes := lists(groups, []*metav1.PartialObjectMetadata{bad, lost, pod("a", uid, db, nil)})
	if lines := strings.Count(texts["db"], "\n"); lines != 4 || len(texts) != 2 || texts["empty"] != "" {
		t.Errorf("%q", texts)
	}
	if len(mistakes) != 2 || mistakes[bad] == "" || mistakes[lost] == "" {
		t.Errorf("%v", mistakes)
	}
}

func TestWrongFilesOfGroupsAreRefused(t *testing.T) {
	for _, text := range []string{`[{"name":"db","pods":"a in b"}]`, `[{"name":"db","pod":"a=b"}]`, `{}`} {
		if groups, err := groupsOf(t, text); err == nil {
			t.Errorf("%s: %v", text, groups)
		}
	}
}
