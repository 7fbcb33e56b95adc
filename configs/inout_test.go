package configs

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/apollo-11/apollo/events"
)

const inout = `name: x
contracts: {c: {schema: {}}}
stages:
  a:
    run: x
    inputs:
      ref: {file: data/ref.csv, contract: c}
      all: {file: /opt/all/}
    outputs:
      parts: {path: out/parts/}
      table: {path: t.csv, key: [id, day]}
  b:
    run: x
    needs: [a]
    inputs: {parts: "${{ stages.a.outputs.parts }}"}
    when: stages.a.outputs.parts.records > 0
`

func TestDirectoriesKeysAndTheMachine(t *testing.T) {
	t.Parallel()
	p, problems := Parse("x.yaml", []byte(inout), "/work/pipelines", Options{})
	if p == nil || len(problems) > 0 {
		t.Fatalf("%v", problems)
	}
	a, b := p.Plan().Stages[0], p.Plan().Stages[1]
	if diff := cmp.Diff([]events.Input{{Role: "all", File: "/opt/all"}, {Role: "ref", File: "/work/pipelines/data/ref.csv", Format: "csv", Contract: "c"}}, a.Inputs); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]events.Output{{Role: "parts", Path: "out/parts/"}, {Role: "table", Path: "t.csv", Format: "csv", Key: []string{"id", "day"}}}, a.Outputs); diff != "" {
		t.Error(diff)
	}
	if len(b.Inputs) != 1 || strings.TrimSpace(b.Inputs[0].From) != "stages.a.outputs.parts" || b.Inputs[0].Format != "" {
		t.Errorf("%+v", b.Inputs)
	}
}

func TestDirectoriesKeysAndTheMachineRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"inputs: {a: {file: '/opt/${{ params.x }}'}}":                                 "E_EXPR can't hold an expression",
		"inputs: {a: {file: x, from: y}}":                                             "E_ONE from and file",
		"inputs: {a: {format: csv}}":                                                  "E_REQUIRED no source",
		"inputs: {a: {file: ''}}":                                                     "E_PATH names no file",
		"inputs: {a: {file: x, contract: c}}":                                         "E_CONTRACT no format",
		"inputs: {a: {from: '${{ stages.d.outputs.dir }}', format: csv}}, needs: [d]": "E_FIELD is a directory, which has no format",
		"inputs: {a: {from: '${{ stages.d.outputs.dir }}', contract: c}}, needs: [d]": "E_FIELD is a directory, which has no contract",
		"outputs: {a: {path: parts/, format: csv}}":                                   "E_FIELD is a directory, which has no format",
		"outputs: {a: {path: parts/, contract: c}}":                                   "E_FIELD is a directory, which has no contract",
		"outputs: {a: {path: parts/, key: [id]}}":                                     "E_FIELD no table",
		"outputs: {a: {path: parts/}, b: {path: parts/x/y}}":                          "E_PATH lies in the directory parts/",
		"outputs: {a: {path: parts/}, b: {path: parts/x/}}":                           "E_PATH lies in the directory parts/",
		"outputs: {a: {path: parts/}, b: {path: parts}}":                              "E_PATH lies in the directory parts/",
		"outputs: {a: {path: parts//}}":                                               "E_PATH not below",
		"outputs: {a: {path: ../}}":                                                   "E_PATH not below",
		"outputs: {a: {path: /}}":                                                     "E_PATH not below",
		"outputs: {a: {path: t.csv, key: []}}":                                        "E_VALUE no column",
		"outputs: {a: {path: t.csv, key: [id, id]}}":                                  "E_VALUE twice",
		"outputs: {a: {path: t.bin, key: [id]}}":                                      "E_FIELD no table",
		"outputs: {a: {type: string, key: [id]}}":                                     "E_FIELD no table",
	} {
		src := "name: x\ncontracts: {c: {schema: {}}}\nstages:\n  d: {run: x, outputs: {dir: {path: d/}}}\n  s: {run: x, " + text + "}\n"
		_, problems := Parse("p.yaml", []byte(src), "", Options{})
		code, says, _ := strings.Cut(want, " ")
		if len(problems) != 1 || problems[0].Code != code || problems[0].Line != 5 || !strings.Contains(problems[0].Message, says) {
			t.Errorf("%s: %+v, want %s", text, problems, want)
		}
	}
	src := "name: x\nstages:\n  s: {http: {url: 'https://example.org/'}, outputs: {a: {path: d/}}}\n"
	if _, problems := Parse("p.yaml", []byte(src), "", Options{}); len(problems) != 1 || problems[0].Code != "E_HTTP_OUTPUT" {
		t.Errorf("%+v", problems)
	}
}
