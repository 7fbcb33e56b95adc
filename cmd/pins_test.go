package cmd_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/apollo-11/apollo/handlers/executor"
)

type pinsView struct {
	Stage    string `json:"stage"`
	Item     int    `json:"item"`
	Attempt  int    `json:"attempt"`
	State    string `json:"state"`
	Key      string `json:"stage_key"`
	Document string `json:"document"`
	Pins     struct {
		Definition string `json:"definition"`
		Params     map[string]any
	} `json:"pins"`
	Definition struct {
		Executor  string
		Command   []string
		Toolchain []struct{ Name, Value string }
	} `json:"definition"`
	Machine struct{ Platform string } `json:"machine"`
}

// TestShowPins shows what results depend on: the stage key is the SHA-256 of exactly the bytes that are shown, the documents
// that these name are there, each attempt has its own, and a second run has the same.
func TestShowPins(t *testing.T) {
	t.Parallel()
	s := newSite(t, "pins", `name: pins
params: {region: {type: string, default: eu}, long: {type: string, default: `+strings.Repeat("x", 70000)+`}}
stages:
  made:
    outputs: {n: {type: integer}}
    run: |
      echo '{"n": 3}' > "$APOLLO_OUTPUTS"
  each:
    needs: [made]
    foreach: '[1, 2]'
    clock: fixed
    inputs: {n: "${{ stages.made.outputs.n }}"}
    run: "true"
  tried:
    may_fail: true
    retry: {max: 1, interval: 1ms}
    run: exit 3
`)
	read := func(args ...string) (list []pinsView) {
		t.Helper()
		if err := json.Unmarshal([]byte(s.must(append([]string{"show", "latest", "-o", "json", "--pins"}, args...)...)), &list); err != nil {
			t.Fatal(err)
		}
		return list
	}
	s.must("run", "pins")
	first := read()
	if len(first) != 5 { // made, two items, two attempts
		t.Fatalf("%d attempts have pins", len(first))
	}
	keys := map[string]string{}
	for _, p := range first {
		sum := sha256.Sum256([]byte(p.Document))
		if want := "sha256:" + hex.EncodeToString(sum[:]); p.Key != want {
			t.Errorf("%s: the key is %s, the document's digest %s", p.Stage, p.Key, want)
		}
		if p.Definition.Executor != "shell" || len(p.Definition.Toolchain) == 0 || p.Machine.Platform == "" || p.Pins.Params["region"] != "eu" {
			t.Errorf("%s: %+v", p.Stage, p)
		}
		keys[p.Stage+string(rune('0'+p.Item))] = p.Key
	}
	if keys["each1"] == keys["each2"] {
		t.Error("two items have one key")
	}
	if tried := read("tried"); len(tried) != 2 || tried[0].Attempt != 1 || tried[1].Attempt != 2 || tried[0].Key != tried[1].Key || tried[0].State != "failed" {
		t.Errorf("tried: %+v", tried)
	}
	if one := read("each#2"); len(one) != 1 || one[0].Item != 2 {
		t.Errorf("each#2: %+v", one)
	}
	text := s.must("show", "latest", "each", "--pins")
	for _, want := range []string{"each#1", "stage key ", keys["each1"], "definition ", "command ", "/bin/sh -e -c true script", "toolchain ", "interpreter_digest", `region = "eu"`, "n = 3",
		"TZ=UTC", "1980-01-01T00:00:00Z", "machine, not keyed"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if zh := s.must("show", "latest", "each", "--pins", "--lang", "zh"); !strings.Contains(zh, "阶段键") || !strings.Contains(zh, "机器（不入键）") {
		t.Errorf("in Chinese:\n%s", zh)
	}
	s.must("run", "pins")
	for _, p := range read("each") {
		if keys[p.Stage+string(rune('0'+p.Item))] != p.Key {
			t.Errorf("%s#%d has another key in the second run: %s", p.Stage, p.Item, p.Document)
		}
	}
	if _, errs, code := s.apollo("show", "latest", "made"); code != 2 || !strings.Contains(errs, "--pins") {
		t.Errorf("a stage without --pins: exit %d, %s", code, errs)
	}
	if _, errs, code := s.apollo("show", "latest", "nosuch", "--pins"); code != 5 || !strings.Contains(errs, "E_REF") {
		t.Errorf("an unknown stage: exit %d, %s", code, errs)
	}
	s.healthy()
}

// TestShowTakenOver shows what was taken over from another run, and a result that came out otherwise for the same pins.
func TestShowTakenOver(t *testing.T) {
	t.Parallel()
	s := newSite(t, "taken", `name: taken
stages:
  made:
    deterministic: true
    isolation: enforce
    network: none
    clock: fixed
    outputs: {n: {}}
    run: |
      echo "{\"n\": \"$(cat /proc/sys/kernel/random/uuid)\"}" > "$APOLLO_OUTPUTS"
`)
	if can := executor.Isolated(); can.Level != executor.LevelSeccomp && os.Getenv("CI") != "true" { // there the kernel can
		t.Skipf("this kernel has no more than %+v", can)
	}
	out, errs, code := s.apollo("run", "taken", "-o", "json")
	if code != 0 {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	var first, second, third struct {
		Run      string
		Findings []struct {
			Stage, Role, Recorded, Found string
			Other                        string `json:"other_run"`
		}
		Stages []struct {
			Cached  string `json:"cached_from"`
			Key     string `json:"stage_key"`
			Outputs map[string]struct{ Digest string }
		}
	}
	read := func(out string, into any) {
		t.Helper()
		if err := json.Unmarshal([]byte(out), into); err != nil {
			t.Fatalf("%v: %s%s", err, out, errs)
		}
	}
	read(out, &first)
	read(s.must("run", "taken", "-o", "json"), &second)
	if len(second.Findings) > 0 || second.Stages[0].Cached != first.Run || second.Stages[0].Key != first.Stages[0].Key {
		t.Errorf("first %+v\nsecond %+v", first, second)
	}
	if text := s.must("show", "latest"); !strings.Contains(text, "taken over from run "+first.Run) {
		t.Errorf("show says nothing of it:\n%s", text)
	}
	if text := s.must("show", "latest", "--lang", "zh"); !strings.Contains(text, "取自运行 "+first.Run) {
		t.Errorf("show says nothing of it in Chinese:\n%s", text)
	}
	summary := s.must("run", "taken", "--no-cache")
	read(s.must("show", "latest", "-o", "json"), &third)
	if len(third.Findings) != 1 || third.Findings[0].Other != first.Run || third.Findings[0].Recorded != first.Stages[0].Outputs["n"].Digest ||
		third.Findings[0].Found != third.Stages[0].Outputs["n"].Digest || third.Findings[0].Role != "n" {
		t.Fatalf("third %+v", third)
	}
	for _, text := range []string{summary, s.must("show", "latest")} {
		for _, want := range []string{"irreproducible: made gave another n", third.Findings[0].Recorded, third.Findings[0].Found, first.Run} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in\n%s", want, text)
			}
		}
	}
	if rows := s.must("runs"); strings.Count(rows, "1 finding") != 1 {
		t.Errorf("runs says:\n%s", rows)
	}
	out, errs, code = s.apollo("debug", "latest", "made", "--run")
	if code != 0 || !strings.Contains(errs, "output n: differs; recorded "+third.Findings[0].Found) {
		t.Errorf("debug: exit %d\n%s%s", code, out, errs)
	}
	s.healthy()
}
