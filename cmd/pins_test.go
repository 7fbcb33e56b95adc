package cmd_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
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
