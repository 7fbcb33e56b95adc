package configs

import (
	"strings"
	"testing"
)

func TestContainerStages(t *testing.T) {
	t.Parallel()
	pinned := "alpine:3.20@sha256:" + strings.Repeat("0", 64)
	stage := func(keys string) string { return "name: x\nstages: {a: {container: {" + keys + "}}}\n" }
	for _, c := range []badFile{
		{name: "no image", src: stage("command: [a]"), want: []string{"2:25 E_REQUIRED"}},
		{name: "image", src: stage("image: Alpine"), want: []string{"2:33 E_IMAGE"}},
		{name: "option as image", src: stage("image: --privileged"), want: []string{"2:33 E_IMAGE"}},
		{name: "short digest", src: stage("image: alpine@sha256:00"), want: []string{"2:33 E_IMAGE"}},
		{name: "command as text", src: stage("image: " + pinned + ", command: echo hi"), want: []string{"2:127 E_TYPE"}},
		{name: "pull", src: stage("image: " + pinned + ", pull: sometimes"), want: []string{"2:124 E_VALUE"}},
		{name: "workdir", src: stage("image: " + pinned + ", workdir: work"), want: []string{"2:127 E_PATH"}},
		{name: "unknown key", src: stage("image: " + pinned + ", privileged: true"), want: []string{"2:118 E_FIELD"}},
	} {
		checkParse(t, "", c)
	}
	p, problems := Parse("p.yaml", []byte(stage("image: registry.example.com:5000/team/app:1.2")), "", Options{})
	if p == nil || len(problems) != 1 || problems[0].Code != "E_IMAGE_TAG" || problems[0].Severity != SeverityWarning {
		t.Errorf("%v", problems)
	}
	p, problems = Parse("p.yaml", []byte(stage("image: \""+pinned+"\", command: [echo, 10, \"${{ params }}\"], user: 1000, pull: never")), "", Options{})
	if p == nil || len(problems) > 0 || !strings.Contains(string(p.Plan().Stages[0].With), `["echo","10","${{ params }}"]`) {
		t.Errorf("%v", problems)
	}
	for text, want := range map[string]string{"": "none", ", network: allow": "allow", ", network: none": "none"} {
		p, problems = Parse("p.yaml", []byte("name: x\nstages: {a: {container: {image: \""+pinned+"\", user: 1000}"+text+"}, b: {run: x}}\n"), "", Options{})
		if p == nil || len(problems) > 0 {
			t.Fatal(problems)
		}
		plan := p.Plan()
		if a, b := plan.Stages[0], plan.Stages[1]; a.Network != want || b.Network != "" || !strings.Contains(string(a.With), `"user":"1000"`) {
			t.Errorf("%q: %+v", text, plan.Stages)
		}
	}
}
