package events_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"github.com/apollo-11/apollo/events"
)

func refsOf(e *events.Event) (all []events.Ref) {
	e.Refs(func(r events.Ref) { all = append(all, r) })
	return all
}

// TestEveryDigestOfAnEventIsAReference: a digest that is added to what events say is one of an artifact, unless it is in this
// list, so that no prune removes what a new field refers to.
func TestEveryDigestOfAnEventIsAReference(t *testing.T) {
	t.Parallel()
	none := []string{"Plan", "Out", "Err"} // a row of its own; what was written to a log, which is kept beside the artifacts
	d := events.DigestOf([]byte("x"))
	data := reflect.TypeFor[events.Data]()
	for i := range data.NumField() {
		f := data.Field(i)
		if f.Type != reflect.TypeFor[events.Digest]() {
			continue
		}
		e := events.Event{Type: events.StageCompleted}
		reflect.ValueOf(&e.Data).Elem().Field(i).Set(reflect.ValueOf(d))
		if has := len(refsOf(&e)) == 1; has == slices.Contains(none, f.Name) {
			t.Errorf("%s: %v", f.Name, refsOf(&e))
		}
	}
}

func TestRefs(t *testing.T) {
	t.Parallel()
	digest := func(name string) events.Digest { return events.DigestOf([]byte(name)) }
	pins, err := json.Marshal(events.Pins{Schema: 1, Definition: digest("definition"), Params: map[string]json.RawMessage{"p": events.Pinned(make([]byte, 2000))},
		Inputs: []events.PinnedInput{{Role: "d", Kind: "directory", Digest: digest("dir")}, {Role: "f", Kind: "file", Digest: digest("input")}}})
	if err != nil {
		t.Fatal(err)
	}
	e := events.Event{Type: events.StageCompleted, Data: events.Data{Pinned: pins, Blob: digest("blob"), PinnedAt: digest("pins"), Outputs: []events.Result{
		{Digest: digest("file"), Name: "f"}, {Digest: digest("tree"), Name: "t/"}, {Digest: digest("value"), Value: json.RawMessage("1")}},
		Items: json.RawMessage(`[{"$file":{"digest":"` + digest("item").String() + `"}}, "sha256:short"]`), Actual: digest("actual").String(), Expected: "a number"}}
	got := map[events.Ref]bool{}
	for _, r := range refsOf(&e) {
		got[r] = true
	}
	for name, r := range map[string]events.Ref{"definition": {}, "blob": {}, "pins": {Kind: events.RefPins}, "file": {}, "tree": {Kind: events.RefTree}, "item": {Maybe: true},
		"dir": {Kind: events.RefTree, Maybe: true}, "input": {Maybe: true}, "actual": {Kind: events.RefTree, Maybe: true}} {
		if r.Digest = digest(name); !got[r] {
			t.Errorf("%s is no reference: %v", name, got)
		}
	}
	for r := range got {
		if r.Digest == digest("value") {
			t.Error("a value that stands in the event was taken for an artifact")
		}
	}
	started := events.Event{Type: events.StageStarted, Data: events.Data{Blob: digest("items")}}
	if all := refsOf(&started); len(all) != 1 || all[0].Kind != events.RefItems {
		t.Errorf("items: %v", all)
	}
	imported := events.Event{Type: events.RunImported, Data: events.Data{Blob: digest("file")}}
	if all := refsOf(&imported); len(all) != 0 {
		t.Errorf("the file that a run came in: %v", all)
	}
}
